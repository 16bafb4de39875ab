//! Devices between namespaces, and rates on them.
//!
//! `veth` pairs and bridge ports by `ip`, rates by tbf or htb. Delay and loss
//! are not here: they need the emulator.

use anyhow::Result;

use crate::netns::Namespace;

/// Makes a pair of devices, one in each namespace, both up.
///
/// # Errors
/// When a name is taken or too long.
pub(crate) fn veth(near: (&Namespace, &str), far: (&Namespace, &str)) -> Result<()> {
    let ((space, name), (far_space, far_name)) = (near, far);
    space.ip(&[
        "link",
        "add",
        "name",
        name,
        "type",
        "veth",
        "peer",
        "name",
        far_name,
        "netns",
        far_space.name(),
    ])?;
    space.ip(&["link", "set", name, "up"])?;
    far_space.ip(&["link", "set", far_name, "up"]).map(drop)
}

/// Makes a device a port of a bridge; isolated ports reach the bridge but not each other.
///
/// # Errors
/// When either does not exist.
pub(crate) fn join_bridge(
    space: &Namespace,
    port: &str,
    bridge: &str,
    isolated: bool,
) -> Result<()> {
    space.ip(&["link", "set", port, "master", bridge])?;
    if isolated {
        crate::netns::run(
            "bridge",
            &["-n", space.name(), "link", "set", "dev", port, "isolated", "on"],
        )?;
    }
    Ok(())
}

/// Limits what leaves a device, by a token bucket of one full segment burst.
///
/// # Errors
/// When `tc` refuses.
pub(crate) fn limit_tbf(space: &Namespace, device: &str, mbit: u32) -> Result<()> {
    space
        .run_line(&format!(
            "tc qdisc replace dev {device} root tbf rate {mbit}mbit burst 128kb latency 100ms"
        ))
        .map(drop)
}

/// Limits what leaves a device, by one htb class.
///
/// # Errors
/// When `tc` refuses.
pub(crate) fn limit_htb(space: &Namespace, device: &str, mbit: u32) -> Result<()> {
    space.run_line(&format!("tc qdisc replace dev {device} root handle 1: htb default 1"))?;
    space
        .run_line(&format!(
            "tc class replace dev {device} parent 1: classid 1:1 htb rate {mbit}mbit"
        ))
        .map(drop)
}
