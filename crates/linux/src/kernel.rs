//! Loads the programs, attaches them, and hands out their maps.
//!
//! Attached by link: when this process ends, however it ends, the kernel closes
//! the links and detaches the programs.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, PrintLevel, ProgramMut};

use crate::interface::Interface;
use crate::sys;

#[allow(
    unsafe_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unnameable_types,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    clippy::use_self,
    clippy::or_fun_call,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/weir.skel.rs"));
}

/// What is set before the programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) inside_l2_len: u32,
    pub(crate) outside_l2_len: u32,
    pub(crate) mark: u32,
    pub(crate) flows_max: u32,
    pub(crate) adopted_max: u32,
}

/// The maps the daemon uses, and the attachments.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) flows: MapHandle,
    pub(crate) adopted: MapHandle,
    pub(crate) adopted_outside: MapHandle,
    pub(crate) signatures: MapHandle,
    pub(crate) reasons: MapHandle,
    pub(crate) apps: MapHandle,
    pub(crate) ring: MapHandle,
    _links: Vec<OwnedFd>,
}

/// Why the programs are not in place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("load the eBPF programs")]
    Load(#[source] libbpf_rs::Error),
    #[error("attach to {interface:?}")]
    Attach {
        interface: String,
        #[source]
        source: io::Error,
    },
}

/// Loads the programs and attaches them to the interfaces given; with none
/// given, nothing is changed.
///
/// # Errors
///
/// [`KernelError::Load`] with what libbpf or the verifier said,
/// [`KernelError::Attach`]; nothing stays attached then.
pub(crate) fn load(
    settings: Settings,
    inside: &[Interface],
    outside: &[Interface],
) -> Result<Kernel, KernelError> {
    let _previous = libbpf_rs::set_print(Some((PrintLevel::Warn, log_libbpf)));
    let mut object = MaybeUninit::uninit();
    let mut open =
        skeleton::WeirSkelBuilder::default().open(&mut object).map_err(KernelError::Load)?;
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the programs have settings");
    rodata.inside_l2_len = settings.inside_l2_len;
    rodata.outside_l2_len = settings.outside_l2_len;
    rodata.deliver_mark = settings.mark;
    let resized = [
        open.maps.flows.set_max_entries(settings.flows_max),
        open.maps.adopted.set_max_entries(settings.adopted_max),
        open.maps.adopted_outside.set_max_entries(settings.adopted_max),
    ];
    resized.into_iter().collect::<Result<(), _>>().map_err(KernelError::Load)?;
    let skel = open.load().map_err(KernelError::Load)?;

    let mut links = Vec::new();
    let hooks: [(&[Interface], &ProgramMut<'_>, u32); 4] = [
        (outside, &skel.progs.outside_ingress, libbpf_sys::BPF_TCX_INGRESS),
        (outside, &skel.progs.outside_egress, libbpf_sys::BPF_TCX_EGRESS),
        (inside, &skel.progs.inside_egress, libbpf_sys::BPF_TCX_EGRESS),
        (inside, &skel.progs.inside_ingress, libbpf_sys::BPF_TCX_INGRESS),
    ];
    for (interfaces, program, kind) in hooks {
        for interface in interfaces {
            let link =
                sys::attach_tcx(program.as_fd(), interface.index, kind).map_err(|source| {
                    KernelError::Attach { interface: interface.name.clone(), source }
                })?;
            links.push(link);
        }
    }
    let handle = |map: &libbpf_rs::MapMut<'_>| MapHandle::try_from(map).map_err(KernelError::Load);
    Ok(Kernel {
        flows: handle(&skel.maps.flows)?,
        adopted: handle(&skel.maps.adopted)?,
        adopted_outside: handle(&skel.maps.adopted_outside)?,
        signatures: handle(&skel.maps.signatures)?,
        reasons: handle(&skel.maps.reasons)?,
        apps: handle(&skel.maps.apps)?,
        ring: handle(&skel.maps.held_ring)?,
        _links: links,
    })
}

/// Sums a per-processor array of `u64`, one value an index.
pub(crate) fn sums(map: &MapHandle) -> Vec<u64> {
    (0..map.max_entries())
        .map(|index| {
            let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            values.unwrap_or_default().iter().map(|value| u64_of(value)).sum()
        })
        .collect()
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0)
}

/// The verifier's log comes as one message of hundreds of lines.
fn log_libbpf(_level: PrintLevel, message: String) {
    let message = message.trim_end();
    let first = message.lines().next().unwrap_or_default();
    tracing::warn!(target: "weir_linux::libbpf", "{first}");
    if first.len() < message.len() {
        tracing::debug!(target: "weir_linux::libbpf", "{message}");
    }
}
