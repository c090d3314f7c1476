//! Imports make no circle: no file of the product imports itself by way of others. What counts is each `use` of its own
//! crate. A file may use what its own parents define: they are the face of the folder that it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Path of a module in its crate.
type Module = Vec<String>;

/// Folders with crates of the product, and one with a crate in each of its folders.
const CRATES: [&str; 9] = ["controller", "fair", "hub", "manifests", "plugin", "server", "shared", "view", "webhook"];
const CLOUDS: &str = "clouds";

/// The module of a file, by its path below `src`. `None` for tests.
fn module(path: &str) -> Option<Module> {
    let mut module: Module = path.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.iter().any(|part| part == "tests" || part == "testing") {
        return None;
    }
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    Some(module)
}

/// Each `use` of a file, and whether it is public. What stands in its tests does not count.
fn uses(text: &str) -> Vec<(bool, String)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let (mut found, mut open): (Vec<(bool, String)>, bool) = (Vec::new(), false);
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        if !open {
            let (visible, rest) = match line.strip_prefix("pub") {
                Some(rest) => (true, rest.trim_start_matches("(crate)").trim_start_matches("(super)").trim_start()),
                None => (false, line),
            };
            let Some(rest) = rest.strip_prefix("use ") else { continue };
            found.push((visible, rest.to_owned()));
        } else if let Some((_, body)) = found.last_mut() {
            body.push_str(line);
        }
        open = !line.ends_with(';');
    }
    found
}

/// All paths that a `use` names.
fn paths(body: &str) -> Vec<String> {
    let body = body.trim_end_matches([';', ',']);
    let Some((before, inner)) = body.split_once('{') else {
        return vec![body.split(" as ").next().unwrap_or_default().replace(' ', "")];
    };
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for c in inner.strip_suffix('}').unwrap_or(inner).chars() {
        depth = depth + usize::from(c == '{') - usize::from(c == '}');
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let named = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    named.flat_map(paths).map(|path| format!("{}{path}", before.trim())).collect()
}

/// The modules that a file of this one imports.
fn imported(module: &Module, text: &str, all: &BTreeSet<Module>) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    for (visible, body) in uses(text) {
        for path in paths(&body) {
            let mut parts = path.split("::").peekable();
            let mut target = match parts.next() {
                Some("crate") => Vec::new(),
                Some("self") => module.clone(),
                Some("super") => {
                    let ups = 1 + std::iter::from_fn(|| parts.next_if_eq(&"super")).count();
                    module[..module.len().saturating_sub(ups)].to_vec()
                }
                _ => continue,
            };
            target.extend(parts.map(str::to_owned));
            while !all.contains(&target) && target.pop().is_some() {}
            // What a face hands on is no import.
            let is_handed_on = visible && target.starts_with(module);
            if !module.starts_with(&target) && !is_handed_on {
                found.insert(target);
            }
        }
    }
    found
}

/// Who imports whom in a crate, of those that are in a circle or between two.
fn circles(files: &BTreeMap<String, String>) -> Vec<String> {
    let modules: BTreeMap<Module, &String> =
        files.iter().filter_map(|(path, text)| Some((module(path)?, text))).collect();
    let all: BTreeSet<Module> = modules.keys().cloned().collect();
    let mut arrows: BTreeSet<(Module, Module)> = BTreeSet::new();
    for (module, text) in &modules {
        arrows.extend(imported(module, text, &all).into_iter().map(|to| (module.clone(), to)));
    }
    loop {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = arrows.iter().cloned().unzip();
        let before = arrows.len();
        arrows.retain(|(a, b)| to.contains(a) && from.contains(b));
        if arrows.len() == before {
            return arrows.iter().map(|(a, b)| format!("{} -> {}", a.join("::"), b.join("::"))).collect();
        }
    }
}

fn read(folder: &Path, below: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{below}{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            read(&path, &format!("{name}/"), found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let clouds = fs::read_dir(root.join(CLOUDS)).unwrap().map(|entry| entry.unwrap().path());
    let crates: Vec<_> = CRATES.iter().map(|name| root.join(name)).chain(clouds).collect();
    let mut found = Vec::new();
    for folder in crates.iter().map(|folder| folder.join("src")) {
        let mut files = BTreeMap::new();
        read(&folder, "", &mut files);
        assert!(!files.is_empty(), "{folder:?} has no source");
        found.extend(circles(&files).into_iter().map(|arrow| format!("{}: {arrow}", folder.display())));
    }
    assert!(found.is_empty(), "imports make a circle:\n{}", found.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let of = |files: &[(&str, &str)]| {
        circles(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    };
    let ring = [
        ("lib.rs", "mod a;\nmod b;\nuse crate::a::X;"),
        ("a.rs", "use std::fmt;\nuse crate::{b::{Y, Z as W},\n    c};"),
        ("b/mod.rs", "mod d;\npub use self::d::D;"),
        ("b/d.rs", "use super::super::a::X; // and no more\nuse super::Y;"),
        ("c.rs", "pub(crate) use crate::a::X;"),
    ];
    assert_eq!(of(&ring), ["a -> c", "c -> a"]);
    assert_eq!(of(&ring[..3]), [""; 0]);
    let through = [("a.rs", "use crate::b::d::D;"), ("b/mod.rs", ""), ("b/d.rs", "use crate::a::A;")];
    assert_eq!(of(&through), ["a -> b::d", "b::d -> a"]);
    let in_tests = [("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n")];
    assert_eq!(of(&in_tests), [""; 0]);
}
