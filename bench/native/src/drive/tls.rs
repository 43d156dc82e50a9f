//! A TLS 1.3 client that accepts any certificate: the identity of the server does not matter here.

use std::io::{self, BufRead, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use super::measurement::Fault;
use super::transport::{Transport, Turn, read};
use crate::poller::Readiness;
use crate::socket::send;

/// TLS with the settings that all connections share.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl Tls {
    /// TLS 1.3 with the provider's default ciphers.
    pub fn new() -> Self {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AnyCertificate(provider.clone()));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has ciphers of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Self {
            config: Arc::new(config),
            server: ServerName::try_from("localhost").expect("localhost is a name"),
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self::new()
    }
}

impl From<rustls::Error> for Fault {
    fn from(_: rustls::Error) -> Self {
        Self::Tls
    }
}

/// Errors of the session; errors of the socket are handled before.
impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Self {
        Self::Tls
    }
}

impl Transport for Tls {
    type Channel = ClientConnection;

    fn open(&self) -> ClientConnection {
        ClientConnection::new(self.config.clone(), self.server.clone())
            .expect("the settings are those of a client")
    }

    fn greet(
        &self,
        channel: &mut ClientConnection,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
    ) -> Result<bool, Fault> {
        if readiness.readable() {
            read(socket, readiness, scratch, |bytes| {
                decrypt(channel, bytes, |_| Err(Fault::Mismatch))
            })?;
        }
        self.flush(channel, socket)?;
        Ok(!channel.is_handshaking() && !channel.wants_write())
    }

    fn send(
        &self,
        channel: &mut ClientConnection,
        socket: &OwnedFd,
        bytes: &[u8],
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        loop {
            taken += channel.writer().write(&bytes[taken..])?;
            self.flush(channel, socket)?;
            if taken == bytes.len() || channel.wants_write() {
                return Ok(taken);
            }
        }
    }

    fn flush(&self, channel: &mut ClientConnection, socket: &OwnedFd) -> Result<(), Fault> {
        let mut kernel = Kernel {
            socket,
            fault: None,
        };
        while channel.wants_write() {
            match channel.write_tls(&mut kernel) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(kernel.fault.unwrap_or(Fault::Tls)),
            }
        }
        Ok(())
    }

    fn read(
        &self,
        channel: &mut ClientConnection,
        socket: &OwnedFd,
        readiness: Readiness,
        scratch: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<Turn, Fault> {
        let turn = read(socket, readiness, scratch, |bytes| {
            decrypt(channel, bytes, &mut take)
        })?;
        // Sends the answer to a key update, if the server requested one.
        self.flush(channel, socket)?;
        Ok(turn)
    }
}

fn decrypt(
    channel: &mut ClientConnection,
    mut bytes: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while !bytes.is_empty() {
        channel.read_tls(&mut bytes)?;
        channel.process_new_packets()?;
        let mut reader = channel.reader();
        loop {
            let length = match reader.fill_buf() {
                Ok([]) => return Err(Fault::Closed),
                Ok(plain) => {
                    take(plain)?;
                    plain.len()
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            reader.consume(length);
        }
    }
    Ok(())
}

/// The socket as a writer for rustls. It keeps the fault, which an `io::Error` would lose.
struct Kernel<'a> {
    socket: &'a OwnedFd,
    fault: Option<Fault>,
}

impl Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match send(self.socket, bytes) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(sent) => Ok(sent),
            Err(errno) => {
                self.fault = Some(Fault::from(errno));
                Err(errno.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts any certificate, but checks signatures.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
