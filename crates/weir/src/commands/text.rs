//! Figures for people.

/// `1536` as `1.5 KiB`.
pub(super) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let exponent = (n.max(1).ilog2() / 10).min(5);
    if exponent == 0 {
        return format!("{n} B");
    }
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = n as f64 / f64::from(2_u32).powi(exponent.cast_signed() * 10);
    format!("{value:.1} {}", UNITS[exponent as usize - 1])
}

/// `part` of `whole` as `12.3 %`; a dash when there is no whole.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let share = part as f64 / whole as f64 * 100.0;
    format!("{share:.1} %")
}

/// Seconds as `3 h 5 min`.
pub(super) fn span(seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float clamps when it is cast, and there are no negative ages"
    )]
    let seconds = seconds.max(0.0) as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, _, _) => format!("{d} d {h} h"),
    }
}

/// A stranger's text without what moves a terminal's cursor, or worse.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(span(59.9), "59 s");
        assert_eq!(span(3700.0), "1 h 1 min");
    }

    #[test]
    fn a_strangers_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2J\r\n\u{9b}b é"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b é");
    }
}
