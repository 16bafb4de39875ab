//! Request streams of real clients, as they went over the wire.
//!
//! A capture of what a client sent to the seeder is put together again by
//! sequence number and read as BitTorrent messages (BEP 3); only requests (id 6)
//! are kept. The recorded streams of `data/requests` were made by
//! `weir-lab record-requests`, so that the inference can be judged on them
//! without running a client.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::capture::{Flow, Segment};

/// One request message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Number of the piece.
    pub(crate) index: u32,
    /// Where in the piece.
    pub(crate) begin: u32,
    /// How many bytes.
    pub(crate) len: u32,
}

impl Request {
    /// The request that goes on where this one ends.
    fn next(self) -> Option<Self> {
        Some(Self { begin: self.begin.checked_add(self.len)?, ..self })
    }
}

/// A recorded stream: who asked, with which piece length, for what.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The client.
    pub(crate) client: String,
    /// The torrent's piece length in bytes.
    pub(crate) piece_bytes: u64,
    /// The requests in order.
    pub(crate) requests: Vec<Request>,
}

impl Stream {
    /// The streams that were recorded.
    ///
    /// # Errors
    /// When a file is not what `record-requests` writes.
    pub(crate) fn recorded() -> Result<Vec<Self>> {
        RECORDED
            .iter()
            .map(|(name, text)| Self::parse(text).with_context(|| (*name).to_owned()))
            .collect()
    }

    /// The text of a file: a head, then a line `INDEX BEGIN LENGTH COUNT` for each
    /// run of requests that follow each other in a piece.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# {} {}\n", self.client, self.piece_bytes);
        let mut rest = self.requests.as_slice();
        while let Some(first) = rest.first() {
            let follows = |pair: &[Request]| pair[0].next() == Some(pair[1]);
            let count = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
            let Request { index, begin, len } = first;
            writeln!(text, "{index} {begin} {len} {count}")
                .expect("writing to a string never fails");
            rest = &rest[count..];
        }
        text
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| line.strip_prefix("# ")).context("no head")?;
        let (client, piece_bytes) = head.split_once(' ').context("a head without piece length")?;
        let mut requests = Vec::new();
        for line in lines {
            let words: Vec<u32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let &[index, begin, len, count] = words.as_slice() else { bail!("no run: {line:?}") };
            let mut request = Request { index, begin, len };
            for _ in 0..count {
                requests.push(request);
                request = request.next().context("a run beyond 32 bits")?;
            }
        }
        Ok(Self { client: client.to_owned(), piece_bytes: piece_bytes.parse()?, requests })
    }
}

/// The requests of the flow that has most of them.
pub(crate) fn requests_of(segments: &[Segment]) -> Vec<Request> {
    let mut flows: BTreeMap<Flow, Vec<&Segment>> = BTreeMap::new();
    for segment in segments {
        flows.entry(segment.flow).or_default().push(segment);
    }
    let streams = flows.into_values().map(|segments| parse_messages(&assemble(&segments)));
    streams.max_by_key(Vec::len).unwrap_or_default()
}

/// Puts a direction's payload in order; ends at the first gap.
fn assemble(segments: &[&Segment]) -> Vec<u8> {
    let Some(first) = segments.iter().find(|segment| segment.syn) else { return Vec::new() };
    let start = first.sequence.wrapping_add(1);
    let mut parts: Vec<(u32, &[u8])> = segments
        .iter()
        .filter(|segment| !segment.payload.is_empty())
        .map(|segment| (segment.sequence.wrapping_sub(start), segment.payload.as_slice()))
        .collect();
    parts.sort_by_key(|part| part.0);
    let mut bytes: Vec<u8> = Vec::new();
    for (offset, payload) in parts {
        let offset = usize::try_from(offset).expect("32 bits fit a size");
        if offset > bytes.len() {
            break;
        }
        // A retransmission repeats what is there and may add to it.
        if let Some(new) = payload.get(bytes.len() - offset..) {
            bytes.extend_from_slice(new);
        }
    }
    bytes
}

fn parse_messages(bytes: &[u8]) -> Vec<Request> {
    let mut requests = Vec::new();
    let Some(mut rest) = bytes.get(HANDSHAKE_BYTES..) else { return requests };
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let len = usize::try_from(u32::from_be_bytes(*head)).expect("32 bits fit a size");
        let Some(message) = after.get(..len) else { break };
        if len == 13 && message[0] == REQUEST_ID {
            requests.push(Request {
                index: word(&message[1..5]),
                begin: word(&message[5..9]),
                len: word(&message[9..13]),
            });
        }
        rest = &after[len..];
    }
    requests
}

/// Writes a stream to `dir`, named for its client and piece length.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(stream: &Stream, dir: &Path) -> Result<()> {
    let path = dir.join(format!("{}-{}k.txt", stream.client, stream.piece_bytes / 1024));
    fs::write(&path, stream.text()).with_context(|| format!("write {}", path.display()))
}

/// How long one recording may take.
pub(crate) const RECORD_LIMIT: Duration = Duration::from_secs(120);

const HANDSHAKE_BYTES: usize = 68;
const REQUEST_ID: u8 = 6;

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../data/requests/", $name, ".txt")))),*]
    };
}

const RECORDED: [(&str, &str); 12] = recorded![
    "deluge-256k",
    "deluge-1024k",
    "deluge-4096k",
    "libtorrent-256k",
    "libtorrent-1024k",
    "libtorrent-4096k",
    "rtorrent-256k",
    "rtorrent-1024k",
    "rtorrent-4096k",
    "transmission-256k",
    "transmission-1024k",
    "transmission-4096k",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(sequence: u32, syn: bool, payload: &[u8]) -> Segment {
        let address = "10.0.0.1:1".parse().unwrap();
        let flow = Flow { from: address, to: address };
        Segment { flow, sequence, syn, payload: payload.to_vec() }
    }

    fn request(index: u32) -> Vec<u8> {
        let mut message = vec![0, 0, 0, 13, REQUEST_ID];
        for word in [index, 16384, 16384] {
            message.extend(word.to_be_bytes());
        }
        message
    }

    #[test]
    fn requests_are_found_among_other_messages_of_a_disordered_capture() {
        let mut bytes = vec![0; HANDSHAKE_BYTES];
        bytes.extend([0, 0, 0, 1, 2]);
        bytes.extend(request(7));
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(request(8));
        let start = u32::MAX - 40;
        let (a, b) = bytes.split_at(80);
        let second = segment(start.wrapping_add(81), false, b);
        let first = segment(start.wrapping_add(1), false, a);
        let segments = [segment(start, true, &[]), second.clone(), first, second];
        let found = requests_of(&segments);
        assert_eq!(found.iter().map(|r| r.index).collect::<Vec<_>>(), [7, 8]);
        assert_eq!((found[0].begin, found[0].len), (16384, 16384));
    }

    #[test]
    fn a_gap_ends_the_stream() {
        let mut bytes = vec![0; HANDSHAKE_BYTES];
        bytes.extend(request(7));
        let first = segment(1, false, &bytes);
        let late = segment(1000, false, &request(8));
        assert_eq!(requests_of(&[segment(0, true, &[]), first, late]).len(), 1);
    }

    #[test]
    fn a_stream_survives_its_text() {
        let request = |index, begin, len| Request { index, begin, len };
        let requests = vec![request(1, 0, 4), request(1, 4, 4), request(1, 8, 2), request(2, 0, 4)];
        let stream = Stream { client: "x".to_owned(), piece_bytes: 262_144, requests };
        assert_eq!(stream.text(), "# x 262144\n1 0 4 2\n1 8 2 1\n2 0 4 1\n");
        let back = Stream::parse(&stream.text()).unwrap();
        assert_eq!(
            (back.client, back.piece_bytes, back.requests),
            ("x".to_owned(), 262_144, stream.requests)
        );
    }

    #[test]
    fn recorded_streams_hold_requests_within_their_pieces() {
        for stream in Stream::recorded().unwrap() {
            assert!(stream.requests.len() >= 500, "{}", stream.client);
            let fits = |r: &Request| u64::from(r.begin) + u64::from(r.len) <= stream.piece_bytes;
            assert!(stream.requests.iter().all(fits), "{}", stream.client);
        }
    }
}
