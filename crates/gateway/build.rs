//! Embeds the dashboard: writes a table of the files of `web/dist`, which
//! `admin/assets.rs` includes.
//!
//! Without a built dashboard the table holds one page that says how to build it,
//! so that the Rust side builds and tests on a machine without Node.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let web = manifest.join("../../web");
    let dist = web.join("dist");
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        println!("cargo::rerun-if-changed={}", dist.display());
        for entry in fs::read_dir(&dist)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(media_type) = media_type(&path) {
                files.push((format!("/{name}"), media_type, path.canonicalize()?));
            }
        }
    } else {
        // A missing path would make every build dirty; its parent does not.
        println!("cargo::rerun-if-changed={}", web.display());
        let page = manifest.join("src/admin/fallback.html");
        println!("cargo::rerun-if-changed={}", page.display());
        files.push(("/index.html".to_owned(), "text/html; charset=utf-8", page));
    }
    println!("cargo::rerun-if-changed=build.rs");
    files.sort();

    let mut table = String::from("&[\n");
    for (path, media_type, file) in &files {
        let etag = format!("\"{:016x}\"", fnv1a(&fs::read(file)?));
        writeln!(
            table,
            "    Asset {{ path: {path:?}, media_type: {media_type:?}, etag: {etag:?}, bytes: include_bytes!({file:?}) }},"
        )?;
    }
    table.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("assets.rs"), table)?;
    Ok(())
}

/// The media type by the file's ending; `None` for what is not served.
fn media_type(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "html" => Some("text/html; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// FNV-1a, 64 bits: tells two builds' files apart, nothing more.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
