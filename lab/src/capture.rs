//! What crossed a wire, by tcpdump, reduced to the flows that were seen.
//!
//! Reads classic pcap files of Ethernet frames and looks at addresses and ports
//! of TCP over IPv4 and IPv6; everything else is skipped.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::clock;
use crate::netns::Namespace;
use crate::process::Program;

/// One direction of a TCP connection: who sent to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    /// The sender.
    pub(crate) from: SocketAddr,
    /// The receiver.
    pub(crate) to: SocketAddr,
}

impl Flow {
    /// The other direction.
    pub(crate) const fn reverse(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// One TCP segment of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its direction of its connection.
    pub(crate) flow: Flow,
    /// The sequence number of its first byte.
    pub(crate) sequence: u32,
    /// Whether it opens the connection.
    pub(crate) syn: bool,
    /// What it carries, as far as it was captured.
    pub(crate) payload: Vec<u8>,
}

/// A running capture.
#[derive(Debug)]
pub(crate) struct Capture {
    program: Program,
    file: PathBuf,
}

impl Capture {
    /// Captures what matches `filter` on a device until [`Capture::finish`].
    ///
    /// Of a packet `bytes_max` are kept.
    ///
    /// # Errors
    /// When tcpdump does not begin to listen.
    pub(crate) fn start(
        space: &Namespace,
        device: &str,
        filter: &str,
        bytes_max: u32,
        (dir, name): (&Path, &str),
    ) -> Result<Self> {
        let file = dir.join(format!("{name}.pcap"));
        let path = file.to_string_lossy().into_owned();
        let bytes_max = bytes_max.to_string();
        let line = [
            "tcpdump", "-Z", "root", "-i", device, "-n", "-p", "-U", "-s", &bytes_max, "-w", &path,
            filter,
        ]
        .map(str::to_owned);
        let mut program = Program::start(space, name, dir, &line)?;
        clock::wait_for(
            "tcpdump's start",
            Duration::from_secs(10),
            Duration::from_millis(20),
            || {
                program.ensure_running()?;
                let log = fs::read_to_string(program.log()).unwrap_or_default();
                Ok(log.contains("listening on").then_some(()))
            },
        )?;
        Ok(Self { program, file })
    }

    /// Ends the capture and answers the flows it saw.
    ///
    /// # Errors
    /// When its file is not a capture.
    pub(crate) fn finish(mut self) -> Result<BTreeSet<Flow>> {
        self.program.stop();
        flows(&fs::read(&self.file)?)
    }

    /// Ends the capture and answers the segments it saw.
    ///
    /// # Errors
    /// When its file is not a capture.
    pub(crate) fn finish_segments(mut self) -> Result<Vec<Segment>> {
        self.program.stop();
        segments(&fs::read(&self.file)?)
    }
}

/// The TCP flows of a pcap file.
fn flows(pcap: &[u8]) -> Result<BTreeSet<Flow>> {
    Ok(segments(pcap)?.into_iter().map(|segment| segment.flow).collect())
}

/// The TCP segments of a pcap file.
fn segments(pcap: &[u8]) -> Result<Vec<Segment>> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(pcap.get(at..at + 4)?.try_into().ok()?))
    };
    let magic = word(0);
    ensure!(magic == Some(0xa1b2_c3d4) || magic == Some(0xa1b2_3c4d), "no pcap of this machine");
    let mut seen = Vec::new();
    let mut at = 24;
    while let Some(len) = word(at + 8) {
        let len = usize::try_from(len).expect("32 bits fit a size");
        let Some(frame) = pcap.get(at + 16..at + 16 + len) else { break };
        seen.extend(segment(frame));
        at += 16 + len;
    }
    Ok(seen)
}

/// The segment of one Ethernet frame, when it is TCP over IP.
fn segment(frame: &[u8]) -> Option<Segment> {
    let packet = frame.get(14..)?;
    let (from, to, tcp): (IpAddr, IpAddr, &[u8]) = match frame.get(12..14)? {
        [0x08, 0x00] if packet.get(9) == Some(&6) => {
            let address = |at: usize| -> Option<Ipv4Addr> {
                Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
            };
            let header = usize::from(packet.first()? & 15) * 4;
            // Behind the packet's end there may be padding to Ethernet's minimum.
            let total = usize::from(u16_at(packet, 2)?).min(packet.len());
            (address(12)?.into(), address(16)?.into(), packet.get(header..total)?)
        }
        [0x86, 0xdd] if packet.get(6) == Some(&6) => {
            let address = |at: usize| -> Option<Ipv6Addr> {
                Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into())
            };
            (address(8)?.into(), address(24)?.into(), packet.get(40..)?)
        }
        _ => return None,
    };
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    Some(Segment {
        flow: Flow {
            from: SocketAddr::new(from, u16_at(tcp, 0)?),
            to: SocketAddr::new(to, u16_at(tcp, 2)?),
        },
        sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
        syn: tcp.get(13)? & 2 != 0,
        payload: tcp.get(header..).unwrap_or_default().to_vec(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame_v4() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 77, 2, 3, 93, 0, 1, 3]);
        frame.extend([0x1f, 0x90, 0x1a, 0xe1, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        // Padding that belongs to no payload.
        frame.extend([0; 6]);
        frame
    }

    #[test]
    fn a_flow_is_read_from_a_frame() {
        let segment = segment(&frame_v4()).unwrap();
        assert_eq!((segment.sequence, segment.syn, segment.payload.len()), (9, true, 0));
        let flow = segment.flow;
        assert_eq!(flow.from, "10.77.2.3:8080".parse().unwrap());
        assert_eq!(flow.to, "93.0.1.3:6881".parse().unwrap());
        assert_eq!(flow.reverse().from, flow.to);
    }

    #[test]
    fn frames_that_are_not_tcp_or_end_early_are_skipped() {
        let mut udp = frame_v4();
        udp[23] = 17;
        assert_eq!(segment(&udp), None);
        let whole = frame_v4();
        for len in 0..whole.len() - 12 {
            assert_eq!(segment(&whole[..len]), None, "{len}");
        }
    }

    #[test]
    fn a_file_of_two_frames_has_one_flow_and_may_end_early() {
        let frame = frame_v4();
        let mut pcap = 0xa1b2_c3d4_u32.to_ne_bytes().to_vec();
        pcap.resize(24, 0);
        for _ in 0..2 {
            pcap.extend([0; 8]);
            pcap.extend(u32::try_from(frame.len()).unwrap().to_ne_bytes());
            pcap.extend([0; 4]);
            pcap.extend(&frame);
        }
        assert_eq!(flows(&pcap).unwrap().len(), 1);
        assert_eq!(flows(&pcap[..pcap.len() - 3]).unwrap().len(), 1);
        assert!(flows(b"nothing").is_err());
    }
}
