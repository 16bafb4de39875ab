//! How a download asks for its object: which ranges, in which order, how many at
//! once (docs/formats/trace.md).
//!
//! | mode | unit that is ordered | range that is asked for | at once |
//! |---|---|---|---|
//! | segments | 512 KiB segment | the segment | 1 |
//! | bittorrent | piece: power of two, 256 KiB to 16 MiB, at most 2,000 a torrent | 16 KiB block | pipeline of 5 to 250 for each of 4 peers |
//! | emule | 9,728,000 B part | 184,320 B block | 3 blocks a packet |
//! | gnutella | chunk of 97,536 B to 256 KiB, the first one of any length | the chunk | 1 |

use clap::ValueEnum;

use crate::trace::draws::Draws;

/// Bytes of a segment of the plain trace (§2).
pub(crate) const SEGMENT_BYTES: u64 = 524_288;

/// Which protocol's requests a trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestsAs {
    /// Whole segments of 512 KiB, as in pCache's experiment.
    Segments,
    /// Blocks of 16 KiB from four peers at a time.
    Bittorrent,
    /// Blocks of 184,320 bytes, three a packet.
    Emule,
    /// HTTP ranges at any alignment.
    Gnutella,
}

/// How one download asks for its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the object, at least 1.
    object: u64,
    /// Bytes of the first unit, `1..=unit`.
    first: u64,
    /// Bytes of every other unit but the last.
    unit: u64,
    /// Bytes of a range, `1..=unit`.
    range: u64,
    /// How many units are asked for in turns, `1..=LANES_MAX`.
    lanes: usize,
    /// How many requests go out before the first answer came.
    burst: u64,
    /// How many requests go out in one message.
    packet: u64,
    /// How many of the last units are asked for twice.
    twice: usize,
}

impl Layout {
    /// How a download of an object asks. BitTorrent takes one word for its
    /// pipeline, Gnutella one for its chunk and one for its alignment, others none.
    pub(super) fn draw(mode: RequestsAs, object_bytes: u64, draws: &mut Draws) -> Self {
        let object = object_bytes.max(1);
        let of_units = |unit: u64, range: u64| Self {
            object,
            first: unit,
            unit,
            range,
            lanes: 1,
            burst: 1,
            packet: 1,
            twice: 0,
        };
        match mode {
            RequestsAs::Segments => of_units(SEGMENT_BYTES, SEGMENT_BYTES),
            RequestsAs::Bittorrent => {
                let pipeline = PIPELINE_MIN + draws.below(PIPELINE_MAX - PIPELINE_MIN + 1);
                Self {
                    lanes: LANES_MAX,
                    burst: pipeline * LANES_MAX as u64,
                    twice: END_GAME_PIECES,
                    ..of_units(piece_bytes(object), BLOCK_BYTES)
                }
            }
            RequestsAs::Emule => {
                Self { packet: EMULE_PACKET_BLOCKS, ..of_units(EMULE_PART, EMULE_BLOCK) }
            }
            RequestsAs::Gnutella => {
                let chunk = GNUTELLA_MIN + draws.below(GNUTELLA_MAX - GNUTELLA_MIN + 1);
                Self { first: 1 + draws.below(chunk), ..of_units(chunk, chunk) }
            }
        }
    }

    /// How many units the object has.
    pub(super) const fn units(&self) -> u64 {
        1 + self.object.saturating_sub(self.first).div_ceil(self.unit)
    }

    /// The bytes `start..end` of a unit.
    const fn span(&self, unit: u32) -> (u64, u64) {
        let end = self.first + unit as u64 * self.unit;
        let start = if unit == 0 { 0 } else { end - self.unit };
        (start, if end < self.object { end } else { self.object })
    }

    /// How many ranges a list of units is asked for with.
    pub(super) fn requests(&self, order: &[u32]) -> u64 {
        let ranges = |&unit: &u32| {
            let (start, end) = self.span(unit);
            (end - start).div_ceil(self.range)
        };
        order.iter().map(ranges).sum()
    }

    /// Adds what a download that completes asks for again at its end.
    pub(super) fn add_end_game(&self, order: &mut Vec<u32>) {
        let again = order.len().saturating_sub(self.twice)..order.len();
        order.extend_from_within(again);
    }

    /// Bytes between this request, counted from 1, and the next, 0 when the next
    /// goes out with it.
    pub(super) const fn pause_bytes(&self, count: u64) -> u64 {
        if count < self.burst || !count.is_multiple_of(self.packet) {
            return 0;
        }
        self.range * self.packet
    }
}

/// Where a download is.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    /// What is left of the units that are under way, `start < end` or both 0.
    lanes: [(u64, u64); LANES_MAX],
    /// Whose turn it is.
    turn: usize,
    /// How many units of the order were begun.
    begun: usize,
}

impl Cursor {
    /// The next range, as offset and length.
    pub(super) fn next(&mut self, layout: &Layout, order: &[u32]) -> Option<(u64, u64)> {
        for _ in 0..layout.lanes {
            let lane = &mut self.lanes[self.turn];
            self.turn = (self.turn + 1) % layout.lanes;
            if lane.0 == lane.1
                && let Some(&unit) = order.get(self.begun)
            {
                self.begun += 1;
                *lane = layout.span(unit);
            }
            if lane.0 < lane.1 {
                let (offset, len) = (lane.0, layout.range.min(lane.1 - lane.0));
                lane.0 += len;
                return Some((offset, len));
            }
        }
        None
    }
}

/// The smallest power of two that gives at most 2,000 pieces, within bounds.
const fn piece_bytes(object: u64) -> u64 {
    let mut piece = PIECE_MIN;
    while piece < PIECE_MAX && object.div_ceil(piece) > PIECES_MAX {
        piece *= 2;
    }
    piece
}

const BLOCK_BYTES: u64 = 16 << 10;
const PIECE_MIN: u64 = 256 << 10;
const PIECE_MAX: u64 = 16 << 20;
const PIECES_MAX: u64 = 2000;
const PIPELINE_MIN: u64 = 5;
const PIPELINE_MAX: u64 = 250;
const LANES_MAX: usize = 4;
const END_GAME_PIECES: usize = 5;
const EMULE_PART: u64 = 9_728_000;
const EMULE_BLOCK: u64 = 184_320;
const EMULE_PACKET_BLOCKS: u64 = 3;
const GNUTELLA_MIN: u64 = 97_536;
const GNUTELLA_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(layout: &Layout, order: &[u32]) -> Vec<(u64, u64)> {
        let mut cursor = Cursor::default();
        std::iter::from_fn(|| cursor.next(layout, order)).collect()
    }

    fn in_order(layout: &Layout) -> Vec<u32> {
        (0..u32::try_from(layout.units()).unwrap()).collect()
    }

    #[test]
    fn every_mode_covers_the_object_once() {
        let mut draws = Draws::new(6);
        for &mode in RequestsAs::value_variants() {
            for object in [1, 16_384, 524_288, 524_289, 9_728_001, 30_000_000] {
                let layout = Layout::draw(mode, object, &mut draws);
                let order = in_order(&layout);
                let mut ranges = all(&layout, &order);
                assert_eq!(ranges.len() as u64, layout.requests(&order), "{mode:?} {object}");
                ranges.sort_unstable();
                let mut end = 0;
                for (offset, len) in ranges {
                    assert_eq!(offset, end, "{mode:?} {object}");
                    assert!(len > 0);
                    end += len;
                }
                assert_eq!(end, object, "{mode:?}");
            }
        }
    }

    #[test]
    fn pieces_are_powers_of_two_and_number_one_to_two_thousand() {
        for object in [600_000_000, 1_000_000_000, 4_700_000_000, 30_000_000_000] {
            let pieces = object / piece_bytes(object);
            assert!((999..=2000).contains(&pieces), "{object}: {pieces}");
        }
        assert_eq!(piece_bytes(1_000_000), PIECE_MIN);
        assert_eq!(piece_bytes(1 << 50), PIECE_MAX);
        assert_eq!((piece_bytes(2000 << 18), piece_bytes((2000 << 18) + 1)), (1 << 18, 1 << 19));
    }

    #[test]
    fn four_peers_take_turns_block_by_block() {
        let layout = Layout::draw(RequestsAs::Bittorrent, 8 << 18, &mut Draws::new(1));
        let order = [5, 2, 7, 0, 1];
        let pieces: Vec<u64> = all(&layout, &order).iter().map(|(at, _)| at >> 18).collect();
        assert_eq!(pieces[..8], [5, 2, 7, 0, 5, 2, 7, 0]);
        assert_eq!(pieces[64..], [1; 16]);
    }

    #[test]
    fn an_end_game_asks_for_the_last_five_pieces_twice() {
        let layout = Layout::draw(RequestsAs::Bittorrent, 8 << 18, &mut Draws::new(1));
        let mut order = in_order(&layout);
        layout.add_end_game(&mut order);
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7]);
        let plain = Layout::draw(RequestsAs::Segments, 8 << 18, &mut Draws::new(1));
        let mut order = in_order(&plain);
        plain.add_end_game(&mut order);
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn pauses_follow_bursts_and_packets() {
        let mut draws = Draws::new(9);
        let emule = Layout::draw(RequestsAs::Emule, 1 << 30, &mut draws);
        assert_eq!([1, 2, 3, 4].map(|n| emule.pause_bytes(n)), [0, 0, 3 * EMULE_BLOCK, 0]);
        let torrent = Layout::draw(RequestsAs::Bittorrent, 1 << 30, &mut draws);
        assert!((20..=1000).contains(&torrent.burst));
        assert_eq!(torrent.pause_bytes(torrent.burst - 1), 0);
        assert_eq!(torrent.pause_bytes(torrent.burst), BLOCK_BYTES);
        let plain = Layout::draw(RequestsAs::Segments, 1 << 30, &mut draws);
        assert_eq!(plain.pause_bytes(1), SEGMENT_BYTES);
    }

    #[test]
    fn gnutella_chunks_are_not_aligned() {
        let mut draws = Draws::new(10);
        let starts = (0..20).map(|_| Layout::draw(RequestsAs::Gnutella, 1 << 24, &mut draws).first);
        assert!(starts.filter(|first| first % 4096 != 0).count() > 15);
    }
}
