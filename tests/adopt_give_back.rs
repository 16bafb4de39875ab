//! Flows that go back to the kernel, and those that cannot.

use super::*;

/// Half of the bytes are said after the daemon has gone.
#[test]
fn a_flow_given_back_goes_on_without_the_daemon() {
    let Some(lab) = Lab::new() else { return };
    for (v6, inside) in WAYS {
        let daemon = Daemon::start(&lab, Role::GiveBack);
        let ends = lab.ends(v6, inside, PORT);
        let talking = std::thread::spawn(move || {
            let mut script = hello();
            script.gap = Duration::from_millis(400);
            // Quiet until the flow is back.
            ends.talk(10, &script, &Script { after: HANDSHAKE.len() + 1, ..answer() });
        });
        for _ in 0..10 {
            let given = daemon.given_back.recv_timeout(Duration::from_secs(5)).unwrap();
            assert_eq!(given, Ok(()));
        }
        daemon.expect(&[("given_back", 10)]);
        drop(daemon);
        talking.join().unwrap();
    }
}

/// What the dialer sends where the daemon adds a byte to it, what then arrives,
/// and an answer that waits until all of that is there.
pub(super) fn meddled() -> [Script; 3] {
    [
        Script { gap: Duration::from_millis(100), ..hello() },
        Script { first: vec![HANDSHAKE.to_vec(), b"!".to_vec()], ..hello() },
        Script { after: HANDSHAKE.len() + 2, ..answer() },
    ]
}

#[test]
fn a_flow_whose_stream_was_changed_is_not_given_back_and_goes_on() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Meddle);
    let [sent, arriving, quiet] = meddled();
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk_through(1, &sent, &arriving, &quiet);
        let given = daemon.given_back.recv_timeout(Duration::from_secs(5)).unwrap();
        let apart = if inside { "0 and 1" } else { "1 and 0" };
        assert_eq!(given, Err(format!("the two legs are {apart} bytes apart")));
    }
    daemon.expect(&[("given_back", 0)]);
}
