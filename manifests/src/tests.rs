//! The committed YAML and the code say the same. Each expression holds the texts that the code knows, in their order,
//! and no others; each entry and each policy is about the resources that the code is about. Parity of expressions and
//! rules is proven end to end, by `policy_twin` and `match_conditions`.

mod expressions;
mod objects;
mod words;

use std::path::{Path, PathBuf};

use serde_json::Value;
use shared::annotation::keys::{CONTROLLER, NAMESPACE};

/// The controller's account, as the API server names it.
fn controller() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{CONTROLLER}")
}

/// Every YAML file below a folder of this crate.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let (folders, files): (Vec<_>, Vec<_>) = entries.map(|entry| entry.unwrap().path()).partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}

/// Everything that the base and the components hold, from the files as they are.
fn committed() -> Vec<Value> {
    let files = ["base", "components"].into_iter().flat_map(|folder| files(Path::new(folder)));
    files
        .flat_map(|path| serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap())
        .collect()
}

/// The texts of a list, none if it is absent.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

/// The members of a list, none if it is absent.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
