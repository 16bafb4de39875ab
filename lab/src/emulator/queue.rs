//! One direction of the link as a machine without clock or device.
//!
//! A packet that is offered passes in this order: the queue bound (drop-tail),
//! the serialisation at the link's rate, loss, delay and jitter. Released
//! packets leave in the order of their release time, ties in the order of
//! arrival. Reordering means a packet skips the propagation delay, which is how
//! it overtakes the ones before it.
//!
//! Invariants: `queued_bytes` is the sum of the lengths of what waits in the
//! heap for its serialisation; the same seed and the same arrivals give the same
//! decisions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::seed::SplitMix64;

/// What one direction of the link does to packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkOptions {
    /// Propagation delay in nanoseconds.
    pub(crate) delay_ns: u64,
    /// Largest extra delay in nanoseconds, uniform.
    pub(crate) jitter_ns: u64,
    /// Packets lost, in a million.
    pub(crate) loss_ppm: u32,
    /// Packets released without the propagation delay, in a million.
    pub(crate) reorder_ppm: u32,
    /// Rate in bits per second, 0 for none.
    pub(crate) rate_bits_per_sec: u64,
    /// Bytes that may wait for their turn; what comes beyond is dropped.
    pub(crate) queue_bytes_max: usize,
}

/// What became of the packets of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkCounts {
    /// Packets handed on.
    pub(crate) passed: u64,
    /// Packets lost by chance.
    pub(crate) lost: u64,
    /// Packets dropped because the queue was full.
    pub(crate) overflowed: u64,
}

/// One direction of the link.
#[derive(Debug)]
pub(crate) struct LinkQueue {
    options: LinkOptions,
    random: SplitMix64,
    /// When the link's sender is idle again.
    free_at_ns: u64,
    /// (end of serialisation, length) of what still waits for its turn.
    waiting: VecDeque<(u64, usize)>,
    queued_bytes: usize,
    heap: BinaryHeap<Reverse<Held>>,
    arrivals: u64,
    counts: LinkCounts,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    release_ns: u64,
    arrival: u64,
    packet: Vec<u8>,
}

impl LinkQueue {
    /// An idle direction.
    pub(crate) fn new(options: LinkOptions, seed: u64) -> Self {
        Self {
            options,
            random: SplitMix64::new(seed),
            free_at_ns: 0,
            waiting: VecDeque::new(),
            queued_bytes: 0,
            heap: BinaryHeap::new(),
            arrivals: 0,
            counts: LinkCounts::default(),
        }
    }

    /// Takes a packet that arrived at `now_ns`.
    pub(crate) fn offer(&mut self, now_ns: u64, packet: Vec<u8>) {
        self.settle(now_ns);
        if self.queued_bytes + packet.len() > self.options.queue_bytes_max {
            self.counts.overflowed += 1;
            return;
        }
        let sent_ns = self.serialise(now_ns, packet.len());
        // The draws are made for every packet, so that a change of one option
        // does not shift what the others decide.
        let lost = self.random.chance_ppm(self.options.loss_ppm);
        let overtakes = self.random.chance_ppm(self.options.reorder_ppm);
        let jitter_ns = self.random.below(self.options.jitter_ns.saturating_add(1));
        if lost {
            self.counts.lost += 1;
            return;
        }
        let flight_ns = if overtakes { 0 } else { self.options.delay_ns + jitter_ns };
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.heap.push(Reverse(Held { release_ns: sent_ns + flight_ns, arrival, packet }));
    }

    /// The next packet due at `now_ns`.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.next_release_ns()? > now_ns {
            return None;
        }
        let Reverse(held) = self.heap.pop()?;
        self.counts.passed += 1;
        Some(held.packet)
    }

    /// When the next packet is due.
    pub(crate) fn next_release_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(held)| held.release_ns)
    }

    /// What became of the packets so far.
    pub(crate) const fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Forgets what the link has sent by now.
    fn settle(&mut self, now_ns: u64) {
        while let Some(&(sent_ns, len)) = self.waiting.front() {
            if sent_ns > now_ns {
                break;
            }
            self.waiting.pop_front();
            self.queued_bytes -= len;
        }
    }

    fn serialise(&mut self, now_ns: u64, len: usize) -> u64 {
        if self.options.rate_bits_per_sec == 0 {
            return now_ns;
        }
        let bits = u64::try_from(len).expect("a packet's length fits 64 bits") * 8;
        let spent_ns = bits.saturating_mul(1_000_000_000) / self.options.rate_bits_per_sec;
        self.free_at_ns = self.free_at_ns.max(now_ns) + spent_ns;
        self.waiting.push_back((self.free_at_ns, len));
        self.queued_bytes += len;
        self.free_at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn plain() -> LinkOptions {
        LinkOptions {
            delay_ns: 10 * MS,
            jitter_ns: 0,
            loss_ppm: 0,
            reorder_ppm: 0,
            rate_bits_per_sec: 0,
            queue_bytes_max: usize::MAX,
        }
    }

    fn drain(queue: &mut LinkQueue) -> Vec<(u64, u8)> {
        let mut out = Vec::new();
        while let Some(at) = queue.next_release_ns() {
            out.push((at, queue.pop_due(at).unwrap()[0]));
        }
        out
    }

    #[test]
    fn a_packet_is_released_after_the_delay_and_not_before() {
        let mut queue = LinkQueue::new(plain(), 1);
        queue.offer(5, vec![1]);
        assert_eq!(queue.pop_due(10 * MS + 4), None);
        assert_eq!(queue.pop_due(10 * MS + 5), Some(vec![1]));
        assert_eq!(queue.next_release_ns(), None);
    }

    #[test]
    fn packets_of_one_moment_leave_in_the_order_of_arrival() {
        let mut queue = LinkQueue::new(plain(), 1);
        for tag in 0..20 {
            queue.offer(0, vec![tag]);
        }
        let order: Vec<u8> = drain(&mut queue).into_iter().map(|(_, tag)| tag).collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_rate_spaces_packets_by_their_length() {
        let mut options = plain();
        options.rate_bits_per_sec = 100_000_000;
        let mut queue = LinkQueue::new(options, 1);
        queue.offer(0, vec![0; 1250]);
        queue.offer(0, vec![1; 1250]);
        // 1250 bytes at 100 Mbit/s take 100 us.
        assert_eq!(drain(&mut queue), [(10 * MS + 100_000, 0), (10 * MS + 200_000, 1)]);
    }

    #[test]
    fn a_full_queue_drops_the_newcomer_and_counts_it() {
        let mut options = plain();
        options.rate_bits_per_sec = 8_000;
        options.queue_bytes_max = 200;
        let mut queue = LinkQueue::new(options, 1);
        queue.offer(0, vec![0; 100]);
        queue.offer(0, vec![1; 100]);
        queue.offer(0, vec![2; 1]);
        assert_eq!(queue.counts().overflowed, 1);
        // 100 bytes at 8 kbit/s take 100 ms; then there is room again.
        queue.offer(100 * MS, vec![3; 100]);
        assert_eq!(queue.counts().overflowed, 1);
        assert_eq!(drain(&mut queue).len(), 3);
    }

    #[test]
    fn loss_is_near_its_rate_and_the_same_for_the_same_seed() {
        let mut options = plain();
        options.loss_ppm = 10_000;
        let lost = |seed| {
            let mut queue = LinkQueue::new(options.clone(), seed);
            for _ in 0..100_000 {
                queue.offer(0, vec![0]);
            }
            let order: Vec<u64> = drain(&mut queue).iter().map(|&(at, _)| at).collect();
            (queue.counts().lost, order.len())
        };
        let (a, b) = (lost(1), lost(1));
        assert_eq!(a, b);
        assert!((900..1100).contains(&a.0), "{a:?}");
        assert_ne!(lost(2).0, a.0);
    }

    #[test]
    fn reordering_lets_a_packet_overtake_those_before_it() {
        let mut options = plain();
        options.reorder_ppm = 100_000;
        let mut queue = LinkQueue::new(options, 3);
        for tag in 0..100 {
            queue.offer(u64::from(tag) * 1000, vec![tag]);
        }
        let order: Vec<u8> = drain(&mut queue).into_iter().map(|(_, tag)| tag).collect();
        assert_eq!(order.len(), 100);
        assert!(order.windows(2).any(|pair| pair[0] > pair[1]), "nothing overtook");
    }

    #[test]
    fn jitter_stays_within_its_bound() {
        let mut options = plain();
        options.jitter_ns = 2 * MS;
        let mut queue = LinkQueue::new(options, 3);
        for _ in 0..200 {
            queue.offer(0, vec![0]);
        }
        let times: Vec<u64> = drain(&mut queue).into_iter().map(|(at, _)| at).collect();
        assert!(times.iter().all(|&at| (10 * MS..=12 * MS).contains(&at)));
        assert!(times[0] != times[199]);
    }
}
