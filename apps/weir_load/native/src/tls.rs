//! A TLS client without a socket: it takes and returns bytes.
//!
//! Every handshake is a full one. Resuming a session costs the server a fraction of the work, so a
//! load of many connections would measure the client's session cache.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

/// Which servers to trust.
pub enum Trust<'a> {
    /// Servers with a certificate that one of these, in DER, has signed.
    Roots(Vec<&'a [u8]>),
    /// Any server.
    Anybody,
}

/// The settings that all connections of a load share.
pub struct Settings(Arc<ClientConfig>);

impl Settings {
    /// TLS 1.2 and 1.3 with the provider's default ciphers, and these application protocols. Skips
    /// certificates that cannot be parsed, because system stores contain some. Returns an error if
    /// none is left.
    pub fn new(trust: Trust<'_>, protocols: Vec<Vec<u8>>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let mut config = match trust {
            Trust::Roots(certificates) => {
                let mut roots = RootCertStore::empty();
                let (added, _) = roots.add_parsable_certificates(certificates.into_iter().map(CertificateDer::from));
                if added == 0 {
                    return Err(Error::General("none of the certificates can be parsed".into()));
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = protocols;
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }
}

/// The result of bytes from a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The decrypted bytes.
    pub plain: Vec<u8>,
    /// Bytes to send.
    pub reply: Vec<u8>,
}

/// One connection.
pub struct Session(ClientConnection);

impl Session {
    /// Starts a connection to a server of this name or address. Returns it with the first bytes to
    /// send.
    pub fn new(settings: &Settings, server: &str) -> Result<(Self, Vec<u8>), Error> {
        let name = ServerName::try_from(server.to_owned())
            .map_err(|_| Error::General(format!("{server} is not a valid server name")))?;
        let mut connection = ClientConnection::new(settings.0.clone(), name)?;
        // Bytes sent during the handshake are buffered without a limit.
        connection.set_buffer_limit(None);
        let mut session = Self(connection);
        let hello = session.outgoing()?;
        Ok((session, hello))
    }

    /// Returns whether the handshake is still going on.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Encrypts bytes and returns what to send. During the handshake returns nothing; the bytes
    /// are sent at its end.
    pub fn send(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.writer().write_all(plain).map_err(general)?;
        self.outgoing()
    }

    /// Decrypts received bytes, which may be cut anywhere. Ignores bytes after a close_notify,
    /// which the end of the connection follows.
    pub fn received(&mut self, mut bytes: &[u8]) -> Result<Received, Error> {
        let mut all = Received::default();
        while !bytes.is_empty() && self.0.read_tls(&mut bytes).map_err(general)? > 0 {
            let state = self.0.process_new_packets()?;
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = self.0.reader();
            while left > 0 {
                let some = reader.fill_buf().map_err(general)?;
                all.plain.extend_from_slice(some);
                let length = some.len();
                reader.consume(length);
                left -= length;
            }
        }
        all.reply = self.outgoing()?;
        Ok(all)
    }

    fn outgoing(&mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut bytes).map_err(general)?;
        }
        Ok(bytes)
    }
}

fn general(error: io::Error) -> Error {
    Error::General(error.to_string())
}

/// The name of an error in a report.
pub fn kind(error: &Error) -> &'static str {
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => "tls_certificate",
        Error::AlertReceived(AlertDescription::CertificateUnknown | AlertDescription::BadCertificate) => {
            "tls_certificate"
        }
        Error::AlertReceived(_) => "tls_alert",
        _ => "tls_error",
    }
}

/// The text of an error.
pub fn text(error: &Error) -> String {
    let plain = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => "it is not signed by a trusted certificate",
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "it has expired"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "it is for another name",
        _ => return error.to_string(),
    };
    plain.into()
}

/// Checks only that a server has the key of its certificate.
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
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_with_a_hello() {
        let settings = Settings::new(Trust::Anybody, vec![b"http/1.1".to_vec()]).expect("settings");
        for server in ["localhost", "127.0.0.1", "::1"] {
            let (mut session, hello) = Session::new(&settings, server).expect("a session");
            // A handshake record.
            assert_eq!(hello[0], 22);
            assert!(session.is_handshaking());
            assert_eq!(session.send(b"early").expect("it waits"), Vec::<u8>::new());
        }
        assert!(Session::new(&settings, "no name").is_err());
    }

    #[test]
    fn what_is_no_tls_is_an_error() {
        let settings = Settings::new(Trust::Anybody, vec![]).expect("settings");
        let (mut session, _) = Session::new(&settings, "localhost").expect("a session");
        let error = session.received(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect_err("no TLS");
        assert_eq!(kind(&error), "tls_error");
    }

    #[test]
    fn trust_needs_somebody() {
        assert!(Settings::new(Trust::Roots(vec![]), vec![]).is_err());
        assert!(Settings::new(Trust::Roots(vec![b"no certificate"]), vec![]).is_err());
    }
}
