//! Gives the library a fingerprint of its types (`WEIR_TYPES`), so that it refuses the state of a
//! library with other types. The fingerprint changes with every struct and enum of the source,
//! with the dependencies, and with the compiler and its flags.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=Cargo.lock");
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    let mut hasher = DefaultHasher::new();
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    for file in files {
        let source = fs::read_to_string(&file).expect("cannot read a source file");
        types(&source).hash(&mut hasher);
    }
    fs::read_to_string("Cargo.lock").unwrap_or_default().hash(&mut hasher);
    let compiler = Command::new(env::var_os("RUSTC").expect("cargo did not set RUSTC")).arg("-vV").output();
    compiler.expect("cannot run the compiler").stdout.hash(&mut hasher);
    for flag in ["TARGET", "PROFILE", "CARGO_FEATURE_CHAOS"] {
        env::var(flag).unwrap_or_default().hash(&mut hasher);
    }
    // The path of the source does not affect types; with it, each directory would give another
    // library.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    flags
        .split('\u{1f}')
        .filter(|flag| !flag.starts_with("--remap-path-prefix"))
        .for_each(|flag| flag.hash(&mut hasher));
    println!("cargo:rustc-env=WEIR_TYPES={:016x}", hasher.finish());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("cannot read a source folder") {
        let path = entry.expect("cannot read an entry of a source folder").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The type definitions of a source, without comments and tests. A definition starts on a line
/// that begins with its keyword, and ends with the line that closes it.
fn types(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut found = String::new();
    let mut within = None;
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let bare = code.strip_prefix("pub").map_or(code, |rest| rest.split_once(' ').map_or(rest, |(_, bare)| bare));
        let begins = ["struct ", "enum ", "union ", "type "].iter().any(|word| bare.starts_with(word));
        if within.is_none() && begins {
            within = Some(line.len() - line.trim_start().len());
        }
        if !code.is_empty() && (within.is_some() || code.starts_with("#[repr")) {
            found.push_str(code);
            found.push('\n');
        }
        if let Some(indent) = within {
            let closes = code.ends_with(';') || code.ends_with("{}") || code == "}" || (begins && code.ends_with('}'));
            if closes && line.len() - line.trim_start().len() == indent {
                within = None;
            }
        }
    }
    found
}
