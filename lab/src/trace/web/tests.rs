//! The web trace against Table 2 and the reference rows of docs/formats/trace.md

use std::collections::HashMap;

use super::*;
use crate::trace::format::Access;
use crate::trace::info::Info;

fn access(request: Request) -> anyhow::Result<Access> {
    let Request { time_ms, size, offset, len, .. } = request;
    let range = (len < size).then_some((offset, len));
    let object = request.object_number();
    Ok(Access { time_us: time_ms * 1000, object, size: Some(size), range })
}

fn near(what: &str, found: f64, expected: f64, share: f64) {
    let off = found / expected - 1.0;
    println!("  {what}: {found:.5} instead of {expected:.5} ({:+.2} %)", off * 100.0);
    assert!(off.abs() < share, "{what}: {found} instead of {expected}");
}

/// Counts exact, bytes of each bin within 1 %, ratios within 3 % (§3.3).
///
/// Some 38 objects above 100 MB decide the byte hit ratio of one seed, with a
/// standard deviation of 2 %; so it is the mean over seeds that is held against the
/// row, itself one seed's, and seed 1 against three standard deviations of that.
fn holds(name: SiteName, hit_ratio: f64, byte_hit_ratio: f64) {
    let site = Site::printed(name);
    let bins = site.bins();
    let mut large = HashMap::new();
    let trace = WebTrace::new(Params { seed: 1, site, ranges: false }).inspect(|request| {
        if request.class > 0 {
            large.insert(request.object_number(), request.size);
        }
    });
    let found = Info::of("test", trace.map(access)).unwrap();
    println!("{name:?}: {} objects, {} B", found.objects, found.unique_bytes);
    assert_eq!(found.requests, site.requests);
    assert_eq!(found.largest_bytes, Some(site.largest));
    near("bytes", found.bytes as f64, site.bytes, 0.01);
    for class in 1..4 {
        let above = found.above[class - 1];
        let requests: u64 = bins[class..].iter().map(|bin| bin.requests).sum();
        assert_eq!(above.requests, requests);
        near("bytes above", above.bytes as f64, site.above[class - 1].1 * site.bytes, 0.01);
        let next = found.above.get(class).map_or(0, |next| next.bytes);
        near("bytes of the class", (above.bytes - next) as f64, bins[class].bytes, 0.01);
    }
    let body = found.bytes - found.above[0].bytes;
    near("bytes up to 1 MB", body as f64, bins[0].bytes, 0.01);
    near("span", found.span_s, 86_400.0, 0.01);
    near("max hit ratio", found.max_hit_ratio, hit_ratio, 0.03);
    near("max byte hit ratio, seed 1", found.max_byte_hit_ratio, byte_hit_ratio, 0.06);
    let unique_body = found.unique_bytes - large.values().sum::<u64>();
    let unique_large = (0..SEEDS).map(|seed| unique_large(&site, seed)).sum::<u64>() / SEEDS;
    let mean = 1.0 - (unique_body + unique_large) as f64 / site.bytes;
    near("max byte hit ratio, mean", mean, byte_hit_ratio, 0.03);
}

/// Bytes above 1 MB that are asked for at least once.
fn unique_large(site: &Site, seed: u64) -> u64 {
    let tail = Tail::draw(&site.bins(), site.requests, &mut Draws::new(seed));
    let requests = (0..).map_while(|number| tail.request(number));
    let sizes: HashMap<(u8, u32), u64> =
        requests.map(|request| ((request.class, request.object), tail.size(&request))).collect();
    sizes.values().sum()
}

const SEEDS: u64 = 100;

#[test]
fn kaist_is_that_of_the_table() {
    holds(SiteName::Kaist, 0.725, 0.630);
}

#[test]
fn waseda_is_that_of_the_table() {
    holds(SiteName::Waseda, 0.725, 0.655);
}

fn small(ranges: bool) -> Params {
    Params { seed: 1, site: Site::printed(SiteName::Kaist).scaled(100.0), ranges }
}

#[test]
fn a_seed_gives_the_same_trace_as_ever() {
    let sum = |ranges| {
        let words = WebTrace::new(small(ranges)).flat_map(|r| {
            [r.time_ms, u64::from(r.client), r.object_number(), r.size, r.offset, r.len]
        });
        words.fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let found = [sum(false), sum(true)];
    let pinned = [0x3a43_bcef_b5a2_f7fa, 0x8452_5cd9_90b2_4b83];
    assert_eq!(found, pinned, "a change of what seeds mean needs a new GENERATOR_VERSION");
}

#[test]
fn ranges_split_requests_and_change_nothing_else() {
    let whole: Vec<Request> = WebTrace::new(small(false)).collect();
    let mut split = WebTrace::new(small(true)).peekable();
    let (mut ranged, mut large) = (0, 0);
    for request in whole {
        large += u64::from(request.class > 0);
        let mut end = 0;
        let mut parts = 0;
        while end < request.size {
            let part = split.next().unwrap();
            assert_eq!(part, Request { offset: end, len: part.len, ..request });
            end += part.len;
            parts += 1;
        }
        assert!((1..=8).contains(&parts));
        ranged += u64::from(parts > 1);
    }
    assert!(split.next().is_none());
    let share = ranged as f64 / large as f64;
    assert!((0.05..0.4).contains(&share), "{ranged} of {large}");
}

#[test]
fn the_afternoon_is_four_times_as_busy_as_the_night() {
    let hours = WebTrace::new(small(false)).map(|request| request.time_ms / 3_600_000);
    let (mut night, mut day) = (0.0, 0.0);
    for hour in hours {
        night += f64::from(u8::from((2..4).contains(&hour)));
        day += f64::from(u8::from((14..16).contains(&hour)));
    }
    assert!((day / night - 4.0).abs() < 0.5, "{}", day / night);
}

#[test]
fn a_few_clients_ask_most() {
    let clients = small(false).site.clients;
    assert_eq!(clients, 56);
    let mut counts = vec![0u32; clients as usize];
    WebTrace::new(small(false)).for_each(|request| counts[request.client as usize] += 1);
    assert!(counts[0] > 2 * counts[30]);
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn what_a_small_scale_cannot_hold_is_told() {
    let site = Site::printed(SiteName::Waseda).scaled(20.0);
    let trace = WebTrace::new(Params { seed: 1, site, ranges: false });
    assert!(trace.off().all(|(class, off)| class == 3 && off.abs() < 1.0));
}
