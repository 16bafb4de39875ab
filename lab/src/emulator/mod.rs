//! A link between two TUN devices: delay, jitter, loss, reordering, rate, queue.
//!
//! Kernels of the class the lab runs on have no netem, so the link is a process:
//! it reads IP packets from one device, holds them as long as the link would and
//! writes them to the other, each direction by a thread of its own. It refuses
//! to look into packets: what is lost or late is decided by the seed alone.
//!
//! | part | what it is |
//! |---|---|
//! | [`queue`] | the decisions, pure: time and packets in, packets out |
//! | [`tun`] | the device, the only `unsafe` of the lab |
//! | [`drive`] | the threads |

pub(crate) mod drive;
pub(crate) mod queue;
pub(crate) mod tun;
