//! Compiles `bpf/weir.bpf.c` with clang and writes its skeleton.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    // Read when it runs: a target directory may be shared between checkouts.
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let bpf = Path::new(&manifest).join("../../bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    if Command::new("clang").arg("--version").output().is_err() {
        fail("clang is missing", "apt-get install clang");
    }
    let multiarch = PathBuf::from("/usr/include").join(multiarch());
    if !multiarch.join("asm/types.h").exists() && !Path::new("/usr/include/asm").exists() {
        fail("the kernel's user headers are missing", "apt-get install linux-libc-dev");
    }
    let include = format!("-I{}", multiarch.display());
    let built = SkeletonBuilder::new()
        .source(bpf.join("weir.bpf.c"))
        .obj(out.join("weir.bpf.o"))
        .clang_args(["-mcpu=v3", "-Wall", "-Werror", include.as_str()])
        .build_and_generate(out.join("weir.skel.rs"));
    if let Err(error) = built {
        fail(
            &format!("bpf/weir.bpf.c did not compile: {error:#}"),
            "apt-get install clang libelf-dev zlib1g-dev linux-libc-dev",
        );
    }
}

/// Debian's directory of architecture headers, for the target's architecture.
fn multiarch() -> String {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it for build scripts");
    let arch = match arch.as_str() {
        "x86" => "i386",
        "powerpc64" => "powerpc64le",
        other => other,
    };
    format!("{arch}-linux-gnu")
}

fn fail(what: &str, fix: &str) -> ! {
    println!("cargo::error=weir-linux: {what}; try: {fix}");
    exit(1);
}
