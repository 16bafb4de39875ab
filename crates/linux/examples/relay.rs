//! Adopts BitTorrent flows and relays them: `relay INSIDE OUTSIDE [SECONDS]`.
//!
//! For trying out and for measuring. Counters go to stderr at the end.

use std::net::TcpStream as StdStream;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::net::TcpStream;
use weir_linux::{Adopted, Adopter, KernelSignature, Options, Speaker, splice};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [inside, outside, rest @ ..] = arguments.as_slice() else {
        return Err("usage: relay INSIDE OUTSIDE [SECONDS]".into());
    };
    let seconds: u32 = rest.first().map_or(Ok(u32::MAX), |text| text.parse())?;
    let handshake = b"\x13BitTorrent protocol".to_vec();
    let pack = [KernelSignature {
        offset: 0,
        mask: vec![0xff; handshake.len()],
        value: handshake,
        from: Speaker::Either,
        app: 0,
        adopt: true,
    }];
    let options = Options {
        inside: vec![inside.clone()],
        outside: vec![outside.clone()],
        mark: 0x4000_0000,
        table: 100,
        rule_pref: 100,
        flows_max: 262_144,
        adopted_max: 65_536,
    };
    let adopter = Adopter::start(&options, &pack)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (relays, to_relay) = sync_channel::<Adopted>(1024);
    let handle = runtime.handle().clone();
    std::thread::spawn(move || {
        for adopted in to_relay {
            handle.spawn(relay(adopted));
        }
    });
    for _ in 0..seconds {
        // Some may be adopted within one call's second each; time is not exact here.
        while let Some(adopted) = adopter.next(Duration::from_secs(1))? {
            relays.send(adopted)?;
        }
    }
    for (reason, count) in adopter.counters().reasons.iter().filter(|(_, count)| *count > 0) {
        eprintln!("{reason} {count}");
    }
    Ok(())
}

async fn relay(adopted: Adopted) {
    let _guard = adopted.guard;
    let (Ok(inside), Ok(outside)) = (stream(adopted.inside), stream(adopted.outside)) else {
        return;
    };
    splice::relay(&inside, &outside).await;
}

fn stream(fd: OwnedFd) -> std::io::Result<TcpStream> {
    TcpStream::from_std(StdStream::from(fd))
}
