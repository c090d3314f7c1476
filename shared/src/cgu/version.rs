//! The release that the `ClusterVersion`s of policies name (row 7).

/// Replaces a value that a template of `object-templates-raw` gives.
pub(super) const PLACEHOLDER: &str = "placeholder";

/// A `ClusterVersion` in a policy. A missing field is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// URL of the update graph.
    pub upstream: String,
    pub channel: String,
    pub version: String,
    /// Makes a look-up in the graph unnecessary.
    pub image: String,
}

/// Why a release is not known, in TALM's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// A value comes from a template of `object-templates-raw`.
    #[error("templating cluster version fields not supported")]
    Templating,
    /// Two policies differ in this field.
    #[error("platform image defined more then once with conflicting {0} values")]
    Conflict(&'static str),
    /// Neither an image nor all that is needed to look one up.
    #[error("policy with ClusterVersion must have upstream, channel, and version when image is not provided")]
    Incomplete,
    /// A template is resolved on the cluster, and the images are to be pulled before.
    #[error("templatized ClusterVersion fields not supported with precaching")]
    Precaching,
}

impl Release {
    fn fields(&mut self) -> [(&'static str, &mut String); 4] {
        [
            ("upstream", &mut self.upstream),
            ("channel", &mut self.channel),
            ("version", &mut self.version),
            ("image", &mut self.image),
        ]
    }
}

/// The one release that all of them name; `None` if there is no `ClusterVersion`.
pub fn release<'a>(
    found: impl IntoIterator<Item = &'a Release>,
    precaching: bool,
) -> Result<Option<Release>, ReleaseError> {
    let mut merged: Option<Release> = None;
    for one in found {
        let (mut one, all) = (one.clone(), merged.get_or_insert_default());
        for ((name, known), (_, new)) in all.fields().into_iter().zip(one.fields()) {
            if new == PLACEHOLDER {
                return Err(ReleaseError::Templating);
            }
            if known.is_empty() {
                known.clone_from(new);
            } else if !new.is_empty() && new != known {
                return Err(ReleaseError::Conflict(name));
            }
        }
    }
    let Some(release) = merged else { return Ok(None) };
    let needed = [&release.upstream, &release.channel, &release.version];
    if release.image.is_empty() {
        if needed.iter().any(|text| text.is_empty()) {
            return Err(ReleaseError::Incomplete);
        }
        let is_template = |text: &&&String| text.split_once("{{").is_some_and(|(_, rest)| rest.contains("}}"));
        if precaching && needed.iter().any(|text| is_template(&text)) {
            return Err(ReleaseError::Precaching);
        }
    }
    Ok(Some(release))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OCP version of section 5.2.
    #[test]
    fn a_release_is_one_and_complete() {
        let one = |upstream: &str, channel: &str, version: &str, image: &str| {
            let [upstream, channel, version, image] = [upstream, channel, version, image].map(str::to_owned);
            Release { upstream, channel, version, image }
        };
        let by_version = one("u", "c", "4.16.1", "");
        let template = one("u", "c", "{{hub .version hub}}", "");
        for (found, precaching, expected) in [
            (vec![], true, Ok(None)),
            (vec![by_version.clone()], false, Ok(Some(by_version.clone()))),
            (vec![one("", "", "", "i")], true, Ok(Some(one("", "", "", "i")))),
            (vec![one("u", "c", "4.16.1", "i")], true, Ok(Some(one("u", "c", "4.16.1", "i")))),
            (vec![one("u", "", "", ""), one("", "c", "4.16.1", "")], false, Ok(Some(by_version.clone()))),
            (vec![one("u", "c", "", "")], false, Err(ReleaseError::Incomplete)),
            (vec![by_version.clone(), one("x", "", "", "")], false, Err(ReleaseError::Conflict("upstream"))),
            (vec![one("", "", "", "i"), one("", "", "", "j")], false, Err(ReleaseError::Conflict("image"))),
            (vec![one("u", "c", PLACEHOLDER, "")], false, Err(ReleaseError::Templating)),
            (vec![template.clone()], false, Ok(Some(template.clone()))),
            (vec![template], true, Err(ReleaseError::Precaching)),
        ] {
            assert_eq!(release(&found, precaching), expected, "{found:?}");
        }
    }
}
