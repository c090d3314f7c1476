//! What a JSON answer would cost in memory, counted before anything is made of it.
//!
//! `{}` has two bytes and becomes a struct of hundreds: two mebibytes of them took a gigabyte. So the parts are counted first.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Objects of one list.
const MAX_ITEMS: usize = 1_000;
/// Bytes that any answer may cost.
const FREE_BYTES: usize = 8 << 20;
/// Bytes that each byte of the answer may cost besides.
const BYTES_PER_BYTE: usize = 3;
/// Bytes that a number, a text or a member costs besides its own.
const VALUE_BYTES: usize = 32;
/// Bytes that an object or a list costs besides its members.
const CONTAINER_BYTES: usize = 224;

/// Checks what an answer would cost.
///
/// # Errors
/// If it is too much. An answer that is no JSON passes: it is not made into anything either.
pub fn check(answer: &[u8]) -> Result<(), String> {
    let mut budget = Budget { left: FREE_BYTES + BYTES_PER_BYTE * answer.len(), refused: None };
    let mut json = serde_json::Deserializer::from_slice(answer);
    let _ = Part { budget: &mut budget, place: Place::Top }.deserialize(&mut json);
    budget.refused.map_or(Ok(()), |why| Err(why.to_owned()))
}

struct Budget {
    left: usize,
    refused: Option<&'static str>,
}

impl Budget {
    fn spend<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => return self.refuse("the answer has too many parts"),
        }
        Ok(())
    }

    fn refuse<E: Error>(&mut self, why: &'static str) -> Result<(), E> {
        self.refused = Some(why);
        Err(E::custom(why))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    Items,
    Inside,
}

struct Part<'a> {
    budget: &'a mut Budget,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.budget.spend(VALUE_BYTES)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.budget.spend(CONTAINER_BYTES)?;
        let mut items = 0;
        while list.next_element_seed(Part { budget: self.budget, place: Place::Inside })?.is_some() {
            items += 1;
            if self.place == Place::Items && items > MAX_ITEMS {
                self.budget.refuse("the answer has more objects than were asked for")?;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.budget.spend(CONTAINER_BYTES)?;
        while let Some(is_items) = map.next_key_seed(IsItems)? {
            let place = if is_items && self.place == Place::Top { Place::Items } else { Place::Inside };
            map.next_value_seed(Part { budget: self.budget, place })?;
        }
        Ok(())
    }
}

/// Whether a key is `items`, without a copy of it.
struct IsItems;

impl<'de> DeserializeSeed<'de> for IsItems {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for IsItems {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == "items")
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;
    use serde_json::json;

    use super::*;

    fn is_json(answer: &[u8]) -> bool {
        serde_json::from_slice::<IgnoredAny>(answer).is_ok()
    }

    fn repeated(begin: &str, part: &str, end: &str, bytes: usize) -> Vec<u8> {
        let parts = vec![part; bytes / (part.len() + 1)].join(",");
        format!("{begin}{parts}{end}").into_bytes()
    }

    #[test]
    fn small_parts_are_refused_in_number() {
        let two = 2 << 20;
        for (answer, why) in [
            (repeated("{\"items\":[", "{}", "]}", two), "the answer has more objects than were asked for"),
            (
                repeated("{\"items\":[{\"status\":{\"conditions\":[", "{}", "]}}]}", two),
                "the answer has too many parts",
            ),
            (
                repeated("{\"items\":[{\"metadata\":{\"managedFields\":[", "[]", "]}}]}", two),
                "the answer has too many parts",
            ),
            (repeated("{\"items\":[{\"spec\":{\"taints\":[", "0", "]}}]}", two), "the answer has too many parts"),
            (repeated("[", "\"\"", "]", two), "the answer has too many parts"),
        ] {
            assert!(is_json(&answer));
            assert_eq!(check(&answer), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_page_of_large_nodes_is_accepted() {
        let images: Vec<_> = (0..50)
            .map(|number| json!({ "names": [format!("quay.io/openshift/image@sha256:{number:064x}"), "x"], "sizeBytes": 1 }))
            .collect();
        let fields: serde_json::Map<String, serde_json::Value> =
            (0..150).map(|number| (format!("f:field-{number}"), json!({}))).collect();
        let conditions =
            vec![json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m" }); 6];
        let node = json!({
            "metadata": { "name": "worker-1", "managedFields": [{ "fieldsV1": fields }] },
            "status": { "conditions": conditions, "images": images },
        });
        let page = json!({ "kind": "NodeList", "metadata": {}, "items": vec![node; 100] });
        assert_eq!(check(&serde_json::to_vec(&page).unwrap()), Ok(()));
    }

    #[test]
    fn what_is_no_json_passes() {
        for answer in ["", "404 page not found", "{", "{\"items\":[{]}"] {
            assert_eq!(check(answer.as_bytes()), Ok(()), "{answer}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(check(deep.as_bytes()), Ok(()), "the parser ends at its own depth limit");
    }
}
