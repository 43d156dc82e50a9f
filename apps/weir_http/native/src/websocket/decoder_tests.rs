use super::super::frame::head;
use super::super::mask::unmask;
use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Message(Kind, bool, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, Vec<u8>),
}

#[derive(Default)]
pub struct Items {
    items: Vec<Item>,
    message: Vec<u8>,
    plain: Vec<u8>,
}

impl Sink for Items {
    fn unmask(&mut self, masked: &[u8], mask: [u8; 4]) -> &[u8] {
        self.plain = vec![0; masked.len()];
        unmask(masked, &mut self.plain, mask);
        &self.plain
    }
    fn piece(&mut self) {
        self.message.append(&mut self.plain);
    }
    fn end(&mut self, kind: Kind, is_compressed: bool) {
        self.message.append(&mut self.plain);
        self.items.push(Item::Message(kind, is_compressed, std::mem::take(&mut self.message)));
    }
    fn ping(&mut self) {
        self.items.push(Item::Ping(self.plain.clone()));
    }
    fn pong(&mut self) {
        self.items.push(Item::Pong(self.plain.clone()));
    }
    fn close(&mut self, code: Option<u16>) {
        let reason = self.plain.get(2..).unwrap_or_default().to_vec();
        self.items.push(Item::Close(code, reason));
    }
}

const LIMITS: Limits = Limits { message: 1 << 20, may_compress: false };

fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let (head, end) = head(first, payload.len() as u64);
    let mut bytes = head[..end].to_vec();
    bytes[1] |= 0x80;
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend_from_slice(&mask);
    let at = bytes.len();
    bytes.resize(at + payload.len(), 0);
    unmask(payload, &mut bytes[at..], mask);
    bytes
}

/// Decodes pieces one after the other, like a connection: bytes that are not taken are passed
/// again.
fn decoded(pieces: &[&[u8]], limits: Limits) -> (Vec<Item>, Result<Stop, Fault>) {
    let mut decoder = Decoder::default();
    let mut items = Items::default();
    let mut bytes = vec![];
    let mut stop = Stop::Input;
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match decoder.decode(&bytes, limits, &mut items) {
                Err(fault) => return (items.items, Err(fault)),
                Ok(decoded) => {
                    bytes.drain(..decoded.end);
                    stop = decoded.stop;
                }
            }
            if stop == Stop::Closed {
                return (items.items, Ok(stop));
            }
            if stop != Stop::Budget {
                break;
            }
        }
        assert!(bytes.len() < 131);
    }
    (items.items, Ok(stop))
}

fn all_pieces(bytes: &[u8], limits: Limits, expected: &(Vec<Item>, Result<Stop, Fault>)) {
    for cut in 0..=bytes.len() {
        assert_eq!(&decoded(&[&bytes[..cut], &bytes[cut..]], limits), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(&decoded(&single, limits), expected, "byte by byte");
}

#[test]
fn messages_in_any_pieces() {
    let bytes = [
        masked(0x81, "κόσμε".as_bytes()),
        masked(0x02, b"one, "),
        masked(0x89, b"are you there?"),
        masked(0x00, b""),
        masked(0x80, b"two"),
        masked(0x01, b"\xce"),
        masked(0x80, b"\xba"),
        masked(0x82, &[7; 200]),
        masked(0x81, b""),
        masked(0x8a, b""),
        masked(0x88, b"\x03\xe8bye"),
    ]
    .concat();
    let expected = vec![
        Item::Message(Kind::Text, false, "κόσμε".into()),
        Item::Ping(b"are you there?".to_vec()),
        Item::Message(Kind::Binary, false, b"one, two".to_vec()),
        Item::Message(Kind::Text, false, "κ".into()),
        Item::Message(Kind::Binary, false, vec![7; 200]),
        Item::Message(Kind::Text, false, vec![]),
        Item::Pong(vec![]),
        Item::Close(Some(1000), b"bye".to_vec()),
    ];
    all_pieces(&bytes, LIMITS, &(expected, Ok(Stop::Closed)));
}

#[test]
fn faults_in_any_pieces() {
    for (frames, fault) in [
        (vec![masked(0x80, b"")], Fault::Frame),
        (vec![masked(0x01, b"a"), masked(0x81, b"b")], Fault::Frame),
        (vec![masked(0x01, b"a"), masked(0x82, b"b")], Fault::Frame),
        (vec![masked(0xc1, b"a")], Fault::Frame),
        (vec![masked(0x88, b"\x03")], Fault::CloseCode),
        (vec![masked(0x88, b"\x03\xec")], Fault::CloseCode),
        (vec![masked(0x88, b"\x03\xe8\xff")], Fault::NotText),
        (vec![masked(0x81, b"abc\xffdef")], Fault::NotText),
        (vec![masked(0x81, b"\xce")], Fault::NotText),
        (vec![masked(0x01, b"\xce"), masked(0x80, b"")], Fault::NotText),
        (vec![masked(0x82, &[0; 21])], Fault::TooBig),
        (vec![masked(0x02, &[0; 10]), masked(0x00, &[0; 10]), masked(0x80, b"a")], Fault::TooBig),
    ] {
        let limits = Limits { message: 20, may_compress: false };
        let bytes = [masked(0x89, b"before"), frames.concat()].concat();
        all_pieces(&bytes, limits, &(vec![Item::Ping(b"before".to_vec())], Err(fault)));
    }
}

#[test]
fn a_bad_byte_is_refused_before_its_frame_has_come() {
    let bytes = masked(0x81, b"abcdef\xff followed by more");
    let mut decoder = Decoder::default();
    let mut items = Items::default();
    assert!(decoder.decode(&bytes[..6 + 6], LIMITS, &mut items).is_ok());
    assert_eq!(decoder.decode(&bytes[6 + 6..6 + 7], LIMITS, &mut items), Err(Fault::NotText));
}

#[test]
fn compressed_messages() {
    let limits = Limits { may_compress: true, ..LIMITS };
    let bytes = [masked(0x41, b"\xff\xff"), masked(0x80, b"\xff"), masked(0x82, b"plain")].concat();
    let expected =
        vec![Item::Message(Kind::Text, true, vec![0xff; 3]), Item::Message(Kind::Binary, false, b"plain".to_vec())];
    all_pieces(&bytes, limits, &(expected, Ok(Stop::Input)));
    let continued = [masked(0x01, b"a"), masked(0xc0, b"b")].concat();
    assert_eq!(decoded(&[&continued], limits).1, Err(Fault::Frame));
}

#[test]
fn one_call_is_bounded() {
    let mut decoder = Decoder::default();
    let mut items = Items::default();
    let many = masked(0x89, b"").repeat(MOST_FRAMES + 1);
    let decoded = decoder.decode(&many, LIMITS, &mut items);
    assert_eq!(decoded, Ok(Decoded { end: 6 * MOST_FRAMES, stop: Stop::Budget }));
    let large = masked(0x82, &[1; 1 << 20]);
    let Ok(Decoded { end, stop: Stop::Budget }) = decoder.decode(&large, LIMITS, &mut items) else {
        panic!("there is more");
    };
    assert!(end <= MOST_BYTES + 14, "{end}");
    assert_eq!(decoder.message.map(|message| message.size), Some(1 << 20));
}

#[test]
fn an_announced_length_is_no_memory() {
    let (head, end) = head(0x82, 1 << 40);
    let mut bytes = head[..end].to_vec();
    bytes[1] |= 0x80;
    bytes.extend_from_slice(&[0; 4]);
    assert_eq!(decoded(&[&bytes], LIMITS).1, Err(Fault::TooBig));
    let limits = Limits { message: u64::MAX, may_compress: false };
    assert_eq!(decoded(&[&bytes, b"some"], limits), (vec![], Ok(Stop::Input)));
}
