//! Framing: whole and in slices, at each limit, in any chunks.

use bytes::Bytes;

use super::*;
use proptest::prelude::*;

/// Every item of `stream` fed in chunks of `sizes`, round and round.
fn items(stream: &[u8], sizes: &[usize]) -> (Vec<Item>, Result<(), WireError>, Vec<u8>) {
    let (mut framer, mut items, mut rest) = (Framer::new(), Vec::new(), stream);
    for size in sizes.iter().cycle() {
        let (chunk, after) = rest.split_at((*size).clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        framer.push(Bytes::copy_from_slice(chunk));
        loop {
            match framer.poll_item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => {
                    framer.push(Bytes::copy_from_slice(rest));
                    return (items, Err(error), framer.take_rest().concat());
                }
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    (items, Ok(()), framer.take_rest().concat())
}

fn raw(items: &[Item]) -> Vec<u8> {
    items
        .iter()
        .flat_map(|item| match item {
            Item::KeepAlive { raw } | Item::Message { raw, .. } | Item::PieceHeader { raw, .. } => {
                raw.to_vec()
            }
            Item::PieceData { data, .. } | Item::Opaque { data, .. } => data.to_vec(),
        })
        .collect()
}

const BLOCK: Block = Block { index: 1, begin: 2, len: 3 };

fn all_messages() -> Vec<Message> {
    use Message::*;
    vec![
        Choke,
        Unchoke,
        Interested,
        NotInterested,
        Have(9),
        Bitfield(Bytes::from_static(b"\xf0")),
        Request(BLOCK),
        Cancel(BLOCK),
        Port(6881),
        SuggestPiece(4),
        HaveAll,
        HaveNone,
        Reject(BLOCK),
        AllowedFast(5),
        Extended { id: 3, payload: Bytes::from_static(b"de") },
    ]
}

#[test]
fn every_message_round_trips() {
    for message in all_messages() {
        let bytes = message.to_bytes();
        let (got, result, rest) = items(&bytes, &[1]);
        assert_eq!(got, [Item::Message { message, raw: bytes }]);
        assert!(result.is_ok() && rest.is_empty());
    }
}

#[test]
fn a_block_passes_in_slices_as_it_comes() {
    let stream = [&BLOCK.piece_header()[..], b"abc", KEEP_ALIVE].concat();
    let (got, ..) = items(&stream, &[14, 2, 1]);
    assert_eq!(
        got,
        [
            Item::PieceHeader { block: BLOCK, raw: BLOCK.piece_header() },
            Item::PieceData { data: Bytes::from_static(b"a"), last: false },
            Item::PieceData { data: Bytes::from_static(b"bc"), last: true },
            Item::KeepAlive { raw: Bytes::from_static(KEEP_ALIVE) },
        ]
    );
}

#[test]
fn unknown_ids_and_large_messages_pass_in_slices() {
    let unknown = [0, 0, 0, 3, 99, 1, 2];
    let (got, ..) = items(&unknown, &[6]);
    assert_eq!(got.len(), 2);
    assert!(matches!(got[1], Item::Opaque { last: true, .. }));
    let large = Message::Bitfield(vec![1; WHOLE_BYTES_MAX].into()).to_bytes();
    let (got, _, rest) = items(&large, &[1000]);
    assert!(got.iter().all(|i| matches!(i, Item::Opaque { .. })) && rest.is_empty());
    let fits = Message::Bitfield(vec![1; WHOLE_BYTES_MAX - 5].into()).to_bytes();
    assert!(matches!(&items(&fits, &[1000]).0[..], [Item::Message { .. }]));
}

#[test]
fn refuses_lengths_past_each_limit() {
    let head = |len: u32, id: u8| [&len.to_be_bytes()[..], &[id; 9]].concat();
    assert_eq!(items(&head(u32::MAX, 99), &[1]).1, Err(WireError::FrameTooLong { len: u32::MAX }));
    assert_eq!(
        items(&head(FRAME_BYTES_MAX + 1, 5), &[99]).1,
        Err(WireError::FrameTooLong { len: FRAME_BYTES_MAX + 1 })
    );
    assert!(items(&head(FRAME_BYTES_MAX, 5), &[99]).1.is_ok());
    assert!(items(&head(BLOCK_BYTES_MAX + 9, 7), &[99]).1.is_ok());
    for (len, id) in [
        (BLOCK_BYTES_MAX + 10, 7),
        (8, 7),
        (2, 0),
        (4, 4),
        (12, 6),
        (14, 8),
        (2, 9),
        (1, 17),
        (1, 20),
    ] {
        assert_eq!(items(&head(len, id), &[99]).1, Err(WireError::BadLength { id, len }));
    }
}

#[test]
fn what_follows_a_broken_frame_is_not_lost() {
    let stream = [&Message::Choke.to_bytes()[..], &[0xff; 20]].concat();
    let (got, result, rest) = items(&stream, &[3]);
    assert_eq!((got.len(), result.is_err()), (1, true));
    assert_eq!(rest, [0xff; 20]);
}

proptest! {
    #[test]
    fn any_bytes_in_any_chunks_come_out_unchanged(
        kinds in proptest::collection::vec(0usize..19, 0..12), tail in proptest::collection::vec(any::<u8>(), 0..40),
        sizes in proptest::collection::vec(1usize..50, 1..6))
    {
        let mut stream = Vec::new();
        for kind in kinds {
            match all_messages().get(kind) {
                Some(message) => stream.extend_from_slice(&message.to_bytes()),
                None if kind == 15 => stream.extend_from_slice(KEEP_ALIVE),
                None if kind == 16 => stream.extend_from_slice(&[0, 0, 0, 2, 77, 1]),
                None => stream.extend_from_slice(&[&BLOCK.piece_header()[..], b"xyz"].concat()),
            }
        }
        stream.extend_from_slice(&tail);
        let (cut, _, cut_rest) = items(&stream, &sizes);
        let (whole, _, whole_rest) = items(&stream, &[usize::MAX]);
        prop_assert_eq!([raw(&cut), cut_rest].concat(), &stream[..]);
        prop_assert_eq!([raw(&whole), whole_rest].concat(), &stream[..]);
    }
}
