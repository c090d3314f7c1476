//! Comments cite rows and sections of `docs/reference`, and rows of our own tables, such as V6: whatever is cited is
//! there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A word in the path of a file that names no page, and the page of its citations.
const PAGES: [(&str, &str); 6] =
    [("cgu", "talm"), ("talm", "talm"), ("kkp", "kkp"), ("fdb", "fdb"), ("rollout", "rollouts"), ("hive", "hive")];
const WORDS: [(&str, Kind); 4] =
    [("row ", Kind::Row), ("rows ", Kind::Row), ("section ", Kind::Section), ("sections ", Kind::Section)];
const SEPARATORS: [&str; 4] = [", ", " and ", " or ", " to "];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Row,
    Section,
}

/// What a page or a source file has.
#[derive(Default)]
struct Tables {
    rows: BTreeSet<String>,
    sections: BTreeSet<String>,
}

impl Tables {
    fn read(text: &str) -> Self {
        let mut tables = Self::default();
        for line in text.lines() {
            let line = line.trim_start().trim_start_matches("//!").trim_start_matches("///").trim_start();
            if let Some(cells) = line.strip_prefix("| ") {
                let first = number(cells).filter(|(_, rest)| rest.starts_with(" |"));
                tables.rows.extend(first.map(|(row, _)| row.to_owned()));
            } else if line.starts_with('#') {
                let heading = number(line.trim_start_matches('#').trim_start());
                tables.sections.extend(heading.map(|(section, _)| section.to_owned()));
            }
        }
        tables
    }

    fn has(&self, kind: Kind, number: &str) -> bool {
        match kind {
            Kind::Row => self.rows.contains(number),
            Kind::Section => self.sections.contains(number),
        }
    }
}

/// A number at the beginning, such as `9`, `12a`, `V6` or `1.3`, and what follows it.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    let digits = number.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or(number);
    let digits = digits.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(digits);
    let counts = digits.starts_with(|c: char| c.is_ascii_digit());
    (counts && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')).then(|| text.split_at(number.len()))
}

/// All numbers at the beginning, such as `9, 10 and 27` or `V1 to V12`: of a range those between, too.
fn numbers(text: &str) -> Vec<String> {
    let Some((first, mut rest)) = number(text) else { return Vec::new() };
    let mut found = vec![first.to_owned()];
    let mut last = first;
    while let Some((separator, (next, after))) =
        SEPARATORS.iter().find_map(|separator| Some((*separator, rest.strip_prefix(*separator).and_then(number)?)))
    {
        if separator == " to " {
            found.extend(between(last, next));
        }
        found.push(next.to_owned());
        (last, rest) = (next, after);
    }
    found
}

fn between(from: &str, to: &str) -> Vec<String> {
    let count = |text: &str| text.trim_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().ok();
    let letter: String = from.chars().take_while(char::is_ascii_uppercase).collect();
    let (Some(from), Some(to)) = (count(from), count(to)) else { return Vec::new() };
    (from + 1..to).map(|number| format!("{letter}{number}")).collect()
}

fn cited(line: &str) -> Vec<(Kind, String)> {
    let mut found = Vec::new();
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in line.char_indices().filter(|(at, _)| !line[..*at].ends_with(in_word)) {
        let rest = &line[at..];
        for (word, kind) in WORDS {
            if rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word)) {
                found.extend(numbers(&rest[word.len()..]).into_iter().map(|number| (kind, number)));
            }
        }
    }
    found
}

/// The page that a line names.
fn named(line: &str) -> Option<&str> {
    let (name, _) = line.split_once("reference/")?.1.split_once(".md")?;
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-').then_some(name)
}

/// What `text` cites in vain, with file and line. A page holds from the line that names it on.
fn unresolved(path: &str, text: &str, pages: &BTreeMap<String, Tables>, ours: &Tables) -> Vec<String> {
    let mut page = PAGES.iter().find(|(word, _)| path.contains(word)).map_or("(no page)", |(_, page)| *page);
    let mut missing = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = format!("{path}:{}", index + 1);
        if let Some(name) = named(line) {
            page = name;
            if !pages.contains_key(page) {
                missing.push(format!("{at}: there is no docs/reference/{page}.md"));
            }
        }
        for (kind, number) in cited(line) {
            let is_ours = number.starts_with(|c: char| c.is_ascii_uppercase());
            let tables = if is_ours { Some(ours) } else { pages.get(page) };
            if !tables.is_some_and(|tables| tables.has(kind, &number)) {
                let place = if is_ours { "our tables" } else { page };
                missing.push(format!("{at}: {kind:?} {number} is not in {place}"));
            }
        }
    }
    missing
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name.to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn each_citation_leads_to_a_row_or_a_section() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let mut texts = BTreeMap::new();
    for path in paths {
        let short = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        texts.insert(short, fs::read_to_string(path).unwrap());
    }
    // Its own samples are invented.
    assert!(texts.remove("tests/src/citations.rs").is_some(), "the sources are not where they are looked for");
    let (mut pages, mut ours) = (BTreeMap::new(), Tables::default());
    for (path, text) in &texts {
        let mut tables = Tables::read(text);
        if let Some(page) = path.strip_prefix("docs/reference/").and_then(|name| name.strip_suffix(".md")) {
            pages.insert(page.to_owned(), tables);
        } else if Path::new(path).extension().is_some_and(|extension| extension == "rs") {
            ours.rows.append(&mut tables.rows);
        }
    }
    let missing: Vec<String> = texts.iter().flat_map(|(path, text)| unresolved(path, text, &pages, &ours)).collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn what_is_cited() {
    for (line, expected) in [
        ("(rows 9, 10 and 27)", "Row 9, Row 10, Row 27"),
        ("/// Row 12a: how long", "Row 12a"),
        ("of rows V1 to V3.", "Row V1, Row V2, Row V3"),
        ("Rows 7 and 9 to 12c of", "Row 7, Row 9, Row 10, Row 11, Row 12c"),
        ("Section 1.3, checkClusterRunning 2; sections 5 and 6.", "Section 1.3, Section 5, Section 6"),
        ("row 8: nothing; rows 2 or 3", "Row 8, Row 2, Row 3"),
        ("until tomorrow 08:00, in a row, rows of a table, row_5, 3 rows", ""),
    ] {
        let found: Vec<String> = cited(line).iter().map(|(kind, number)| format!("{kind:?} {number}")).collect();
        assert_eq!(found.join(", "), expected, "{line}");
    }
}

#[test]
fn an_invented_citation_is_found() {
    let page =
        "# Title\n## 1. Pause\n### 1.2 End\n| row | what |\n|---|---|\n| 5 | one |\n| 12a | two |\n| 7 days | no row |";
    let pages =
        BTreeMap::from([("kkp".to_owned(), Tables::read(page)), ("hive".to_owned(), Tables::read("| 8 | x |"))]);
    let ours = Tables::read("    /// | A1 | 401 |\n//! | V6 | protected |");
    for (path, text, expected) in [
        ("a/kkp/b.rs", "// rows 5 and 12a, section 1, section 1.2; row A1\n/// row V6", ""),
        ("a/kkp/b.rs", "\n/// rows 5 and 99", "a/kkp/b.rs:2: Row 99 is not in kkp"),
        ("a/kkp/b.rs", "// rows 5 to 7", "a/kkp/b.rs:1: Row 6 is not in kkp\na/kkp/b.rs:1: Row 7 is not in kkp"),
        ("a/kkp/b.rs", "// section 3", "a/kkp/b.rs:1: Section 3 is not in kkp"),
        ("a/kkp/b.rs", "// row V7", "a/kkp/b.rs:1: Row V7 is not in our tables"),
        ("a/b.rs", "// row 5", "a/b.rs:1: Row 5 is not in (no page)"),
        ("a/b.rs", "// docs/reference/kkp.md\n// row 5", ""),
        ("a/kkp/b.rs", "// row 8\n// row 8 of docs/reference/hive.md\n// row 8", "a/kkp/b.rs:1: Row 8 is not in kkp"),
        ("a/kkp/b.rs", "// reference/none.md", "a/kkp/b.rs:1: there is no docs/reference/none.md"),
    ] {
        assert_eq!(unresolved(path, text, &pages, &ours).join("\n"), expected, "{text}");
    }
}
