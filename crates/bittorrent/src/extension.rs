//! The extension protocol (BEP 10) and metadata exchange (BEP 9).
//!
//! Ids are per direction: a message carries the id that its *receiver* gave.

use bytes::Bytes;

use crate::bencode::{Value, Writer};
use crate::wire::Message;

/// Bytes of a piece of metadata; the last one may be shorter (BEP 9).
pub const METADATA_PIECE_BYTES: u32 = 16 << 10;

/// The largest metadata that is read: 16 MiB, 800,000 pieces.
pub const METADATA_BYTES_MAX: u32 = 16 << 20;

/// What one side has said in its extension handshakes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The id under which it wants `ut_metadata` messages; never 0.
    pub ut_metadata: Option<u8>,
    /// Size of the metadata it has; `None` when it did not say, or said nonsense.
    pub metadata_bytes: Option<u32>,
    /// Requests it will queue.
    pub reqq: Option<u32>,
    /// Whether a handshake was read.
    pub seen: bool,
}

impl Extensions {
    /// Reads the payload of an extension handshake. A later one changes only what
    /// it names; an id of 0 switches the extension off (BEP 10). What is no
    /// dictionary changes nothing.
    pub fn update(&mut self, payload: &[u8]) {
        let Ok((dict, _)) = Value::parse_prefix(payload) else { return };
        if !dict.is_dict() {
            return;
        }
        self.seen = true;
        let int = |key: &[u8]| dict.lookup(key).and_then(Value::as_int);
        if let Some(id) = dict.lookup(b"m").and_then(|m| m.lookup(b"ut_metadata")) {
            self.ut_metadata =
                id.as_int().and_then(|id| u8::try_from(id).ok()).filter(|id| *id > 0);
        }
        if let Some(size) = int(b"metadata_size") {
            self.metadata_bytes =
                u32::try_from(size).ok().filter(|size| (1..=METADATA_BYTES_MAX).contains(size));
        }
        if let Some(reqq) = int(b"reqq") {
            self.reqq = u32::try_from(reqq).ok();
        }
    }

    /// An extension handshake that says this.
    pub fn to_message(&self) -> Message {
        let mut w = Writer::new().begin_dict().bytes(b"m").begin_dict();
        if let Some(id) = self.ut_metadata {
            w = w.bytes(b"ut_metadata").int(id.into());
        }
        w = w.end();
        if let Some(size) = self.metadata_bytes {
            w = w.bytes(b"metadata_size").int(size.into());
        }
        if let Some(reqq) = self.reqq {
            w = w.bytes(b"reqq").int(reqq.into());
        }
        Message::Extended { id: 0, payload: w.end().finish().into() }
    }
}

/// A `ut_metadata` message (BEP 9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataMessage {
    /// 0: asks for a piece of the metadata.
    Request {
        /// Which.
        piece: u32,
    },
    /// 1: a piece.
    Data {
        /// Which.
        piece: u32,
        /// Size of the whole metadata, in bytes.
        total_bytes: u32,
        /// The piece.
        data: Bytes,
    },
    /// 2: will not send it.
    Reject {
        /// Which.
        piece: u32,
    },
}

impl MetadataMessage {
    /// Reads what follows the extension's id; `None` when it is not BEP 9's.
    pub fn parse(payload: &Bytes) -> Option<Self> {
        let (dict, rest) = Value::parse_prefix(payload).ok()?;
        let number = |key: &[u8]| u32::try_from(dict.lookup(key)?.as_int()?).ok();
        let piece = number(b"piece")?;
        match number(b"msg_type")? {
            0 => Some(Self::Request { piece }),
            1 => Some(Self::Data {
                piece,
                total_bytes: number(b"total_size")?,
                data: payload.slice_ref(rest),
            }),
            2 => Some(Self::Reject { piece }),
            _ => None,
        }
    }

    /// The frame, for a receiver that gave `ut_metadata` the id `id`.
    pub fn to_message(&self, id: u8) -> Message {
        let head = |kind: i64, piece: &u32| {
            Writer::new()
                .begin_dict()
                .bytes(b"msg_type")
                .int(kind)
                .bytes(b"piece")
                .int((*piece).into())
        };
        let payload = match self {
            Self::Request { piece } => head(0, piece).end().finish(),
            Self::Data { piece, total_bytes, data } => {
                let size = i64::from(*total_bytes);
                let mut out = head(1, piece).bytes(b"total_size").int(size).end().finish();
                out.extend_from_slice(data);
                out
            }
            Self::Reject { piece } => head(2, piece).end().finish(),
        };
        Message::Extended { id, payload: payload.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_clients_handshake() {
        let mut e = Extensions::default();
        e.update(
            b"d1:ei0e1:md11:ut_metadatai3e6:ut_pexi1ee13:metadata_sizei740e1:pi51413e4:reqqi512ee",
        );
        assert_eq!(
            e,
            Extensions {
                ut_metadata: Some(3),
                metadata_bytes: Some(740),
                reqq: Some(512),
                seen: true
            }
        );
    }

    #[test]
    fn a_later_handshake_changes_only_what_it_names() {
        let mut e = Extensions::default();
        e.update(b"d1:md11:ut_metadatai3ee4:reqqi5ee");
        e.update(b"d1:md6:ut_pexi0ee13:metadata_sizei9ee");
        assert_eq!((e.ut_metadata, e.metadata_bytes, e.reqq), (Some(3), Some(9), Some(5)));
        e.update(b"d1:md11:ut_metadatai0eee");
        assert_eq!(e.ut_metadata, None);
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut e = Extensions::default();
        for bad in [&b"de1"[..1], b"i1e", b"", b"\xff"] {
            e.update(bad);
        }
        assert_eq!(e, Extensions::default());
        e.update(b"d1:md11:ut_metadatai300ee13:metadata_sizei99999999999ee");
        assert_eq!((e.ut_metadata, e.metadata_bytes), (None, None));
    }

    #[test]
    fn metadata_messages_round_trip() {
        for message in [
            MetadataMessage::Request { piece: 7 },
            MetadataMessage::Data { piece: 0, total_bytes: 4, data: Bytes::from_static(b"de12") },
            MetadataMessage::Reject { piece: 1 },
        ] {
            let Message::Extended { id: 3, payload } = message.to_message(3) else { panic!("id") };
            assert_eq!(MetadataMessage::parse(&payload), Some(message));
        }
        assert_eq!(MetadataMessage::parse(&Bytes::from_static(b"d8:msg_typei9e5:piecei0ee")), None);
        assert_eq!(
            MetadataMessage::parse(&Bytes::from_static(b"d8:msg_typei1e5:piecei-1ee")),
            None
        );
    }

    #[test]
    fn a_composed_handshake_is_read_back() {
        let said =
            Extensions { ut_metadata: Some(2), metadata_bytes: Some(5), reqq: Some(9), seen: true };
        let Message::Extended { id: 0, payload } = said.to_message() else { panic!("id") };
        let mut read = Extensions::default();
        read.update(&payload);
        assert_eq!(read, said);
    }
}
