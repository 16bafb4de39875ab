//! What becomes of a held flow when its ends or the daemon do not do as expected.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;

/// The dialer goes away while its flow is held: the listener learns of it.
#[test]
fn a_reset_while_held_passes_and_ends_the_adoption() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    let (go, may_go) = channel();
    let (dialing, listening) = lab.ends(false, true, PORT).meet(
        move |mut stream| {
            stream.write_all(HANDSHAKE).unwrap();
            may_go.recv().unwrap();
            reset(stream);
        },
        |mut stream| read(&mut stream, 1),
    );
    daemon.wait_for("held", 1);
    go.send(()).unwrap();
    dialing.join().unwrap();
    assert_eq!(listening.join().unwrap(), Err(ErrorKind::ConnectionReset));
    daemon.expect(&[("hold_reset", 1)]);
    daemon.listen();
    daemon.wait_for("hold_ended", 1);
    daemon.expect(&[("adopted", 0)]);
}

/// What was dropped meanwhile comes again from its sender.
#[test]
fn a_daemon_that_does_not_answer_costs_a_second_and_no_byte() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    for (v6, inside) in WAYS {
        lab.ends(v6, inside, PORT).talk(1, &hello(), &answer());
    }
    daemon.expect(&[("hold_timeout", 4)]);
    assert!(daemon.reason("hold_drop") >= 4, "{}", daemon.counts());
    // What lies in the ring is too old to be touched.
    daemon.listen();
    daemon.wait_for("hold_ended", 4);
    daemon.expect(&[("adopted", 0)]);
}

#[test]
fn a_daemon_that_comes_too_late_lets_the_flow_pass_at_once() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Deaf);
    let ends = lab.ends(false, true, PORT);
    let talking = std::thread::spawn(move || ends.talk(1, &hello(), &answer()));
    daemon.wait_for("held", 1);
    std::thread::sleep(Duration::from_millis(600));
    daemon.listen();
    daemon.wait_for("too_late", 1);
    talking.join().unwrap();
    daemon.expect(&[("hold_timeout", 0), ("adopted", 0)]);
}

/// A daemon as a process of its own, so that it can be killed.
struct Process(Child);

impl Process {
    fn start(lab: &Lab) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hold::the_process_that_is_killed", "--nocapture"])
            .env("WK_DAEMON_NS", &lab.gateway)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        while lines.next().expect("the daemon starts").unwrap() != "ready" {}
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Not a test of its own: what [`Process`] runs.
#[test]
fn the_process_that_is_killed() {
    let Ok(ns) = std::env::var("WK_DAEMON_NS") else { return };
    in_ns(&ns, || {
        let _adopter = Adopter::start(&options(), &signatures()).unwrap();
        println!("\nready");
        // Killed long before.
        std::thread::sleep(Duration::from_secs(60));
    })
    .join()
    .unwrap();
}

#[test]
fn flows_held_by_a_killed_daemon_go_on_and_the_next_daemon_adopts() {
    let Some(lab) = Lab::new() else { return };
    let process = Process::start(&lab);
    let ends = lab.ends(false, true, PORT);
    let talking = std::thread::spawn(move || {
        let mut script = hello();
        script.gap = Duration::from_millis(150);
        ends.talk(20, &script, &answer());
    });
    // While the handshakes are held; nothing can tell from outside when.
    std::thread::sleep(Duration::from_millis(120));
    drop(process);
    talking.join().unwrap();

    let daemon = Daemon::start(&lab, Role::Relay);
    lab.ends(false, true, PORT).talk(1, &hello(), &answer());
    daemon.expect(&[("adopted", 1)]);
}

/// The leg acknowledges the held payload: its sender's timer stops.
#[test]
fn the_held_payload_is_acknowledged_before_the_far_end_answers() {
    let Some(lab) = Lab::new() else { return };
    let daemon = Daemon::start(&lab, Role::Relay);
    // Longer than the dialer's retransmission timer.
    let mut slow = answer();
    slow.first.insert(0, Vec::new());
    slow.gap = Duration::from_millis(700);
    lab.ends(false, true, PORT).talk(1, &Script::new(HANDSHAKE, 0, 1), &slow);
    daemon.expect(&[("adopted", 1)]);
    let snmp =
        in_ns(&lab.client, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let snmp = snmp.join().unwrap();
    let mut tcp = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_whitespace);
    let (mut names, mut values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names.position(|name| name == "RetransSegs").unwrap();
    // The FIN, sent into the hold, may be: nothing but a timer brings it back.
    let sent_again: u32 = values.nth(at).unwrap().parse().unwrap();
    println!("sent again by the dialer: {sent_again}");
    assert!(sent_again <= 1);
}
