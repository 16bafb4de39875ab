use super::*;
use crate::units::Size;

fn parse(text: &str) -> Result<Config, Failure> {
    Config::parse("test.toml", text.to_owned())
}

#[test]
fn the_default_file_is_the_default() {
    assert_eq!(parse(DEFAULT).unwrap(), Config::default());
}

#[test]
fn the_default_file_explains_every_key() {
    let shown = toml::to_string(&Config::default()).unwrap();
    for line in shown.lines().filter(|line| !line.is_empty()) {
        let key = line.split(" = ").next().unwrap();
        assert!(DEFAULT.lines().any(|l| l.starts_with(key)), "{key} is not in default.toml");
    }
}

#[test]
fn unknown_keys_are_pointed_at() {
    let failure = parse("[store]\ncapacitty = \"1GiB\"\n").unwrap_err();
    assert_eq!(failure.code, Code::Config);
    assert!(failure.error.contains("capacitty"), "{}", failure.error);
    assert!(failure.error.contains("test.toml:2"), "{}", failure.error);
}

#[test]
fn values_without_units_are_refused_with_the_reason() {
    let failure = parse("[bittorrent]\nassembly_memory = 7\n").unwrap_err();
    assert!(failure.error.contains("write a whole number"), "{}", failure.error);
}

#[test]
fn flags_win_over_the_file() {
    let mut config =
        parse("[store]\ncapacity = \"1GiB\"\n[explicit]\nlisten = \"1.2.3.4:5\"").unwrap();
    let args = RunArgs {
        proxy: Some("off".into()),
        cache_size: Some(Size(128 << 20)),
        cache_dir: Some("/tmp/x".into()),
        ..RunArgs::default()
    };
    config.apply(&args).unwrap();
    assert!(!config.explicit.enabled);
    let plan = resolve(config).unwrap();
    assert!(plan.options.explicit.is_none());
    assert_eq!(plan.options.store.unwrap().capacity_bytes, 128 << 20);
}

#[test]
fn what_cannot_work_is_refused() {
    let cases = [
        ("[intercept]\ninside = [\"a\"]", "together"),
        ("[intercept]\ninside = [\"a\"]\noutside = [\"a\"]", "inside and outside"),
        ("[intercept]\ninside=[\"a\"]\noutside=[\"b\"]\nmark = 3", "one bit"),
        ("[intercept]\ninside=[\"a\"]\noutside=[\"b\"]\nflows_max = 1", "1024 to"),
        ("[intercept]\ninside=[\"a\"]\noutside=[\"b\"]\ntable = 254", "kernel's own"),
        ("[explicit]\nlisten = \"localhost\"", "explicit.listen"),
        ("[explicit]\nclients = [\"10.0.0.1\"]", "ADDRESS/BITS"),
        ("[explicit]\nconnections_max = 0", "1 to"),
        ("[explicit]\nuser = \"me\"", "no password"),
        ("[admin]\nlisten = \"0.0.0.0:8480\"", "needs a token"),
        ("[store]\ncapacity = \"1MiB\"", "store.capacity"),
        ("[log]\nlevel = \"loud\"", "log.level"),
    ];
    for (text, want) in cases {
        let failure = resolve(parse(text).unwrap()).unwrap_err();
        assert_eq!(failure.code, Code::Config, "{text}");
        assert!(failure.error.contains(want), "{text}: {}", failure.error);
    }
}
