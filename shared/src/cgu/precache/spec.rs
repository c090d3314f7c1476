//! What is pulled: from the policies of the upgrade, its `PreCachingConfig`, and the `ConfigMap` of overrides that came
//! before that.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::api::PrecachingSpec;
use super::super::templates::Templates;

/// Name of the `ConfigMap` of overrides, in the namespace of an upgrade. Deprecated by TALM.
pub const OVERRIDES: &str = "cluster-group-upgrade-overrides";
/// Keys that are read of it.
pub const OVERRIDE_KEYS: [&str; 3] =
    ["operators.packagesAndChannels", "excludePrecachePatterns", "precache.spaceRequired"];
/// Free space that is needed unless a setting says otherwise.
const SPACE: &str = "35 GiB";

/// Settings of pulls.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "ran.openshift.io",
    version = "v1alpha1",
    kind = "PreCachingConfig",
    plural = "precachingconfigs",
    namespaced
)]
#[serde(rename_all = "camelCase", default)]
pub struct PreCachingConfigSpec {
    /// Instead of what the policies say.
    pub overrides: Overrides,
    /// Free space, such as `40 GiB`.
    pub space_required: String,
    /// Images that match are left out.
    pub exclude_precache_patterns: Vec<String>,
    /// More images.
    pub additional_images: Vec<String>,
}

/// Instead of what the policies say.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// `PACKAGE:CHANNEL`
    pub operators_packages_and_channels: Vec<String>,
    /// Deprecated, and ignored.
    pub operators_indexes: Vec<String>,
    /// Deprecated, and ignored.
    pub platform_image: String,
    /// Deprecated, and ignored.
    pub pre_cache_image: String,
}

/// Why nothing can be pulled, in TALM's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The `PreCachingConfig` does not exist.
    #[error("failed to get PreCachingConfig resource due to PreCachingConfig.ran.openshift.io \"{0}\" not found")]
    Missing(String),
    /// Not a size.
    #[error("failed to get PreCachingConfig resource due to invalid size: '{0}'")]
    Space(String),
    /// Catalogs without a package of them.
    #[error("inconsistent precaching configuration: olm index provided, but no packages")]
    NoPackages,
    /// Neither a catalog nor a release.
    #[error("inconsistent precaching configuration: no software spec provided")]
    Nothing,
}

/// What is pulled. `configs`: all `PreCachingConfigs`, by namespace and name; `overrides`: data of the `ConfigMap`; `platform_image`: image of
/// the release, if a policy asks for one.
///
/// # Errors
/// When the settings are missing or inconsistent.
pub fn spec<'a>(
    templates: impl IntoIterator<Item = &'a Templates>,
    config: Option<&(String, String)>,
    configs: &BTreeMap<(String, String), PreCachingConfigSpec>,
    overrides: Option<&BTreeMap<String, String>>,
    platform_image: String,
) -> Result<PrecachingSpec, SpecError> {
    let (mut indexes, mut packages) = (Vec::new(), Vec::new());
    for one in templates {
        indexes.extend(one.indexes.iter().cloned());
        packages.extend(one.packages.iter().cloned());
    }
    let none = PreCachingConfigSpec::default();
    let config = match config {
        Some(reference) => configs.get(reference).ok_or_else(|| SpecError::Missing(reference.1.clone()))?,
        None => &none,
    };
    let given = |key: &str| overrides.and_then(|all| all.get(key)).filter(|text| !text.is_empty());
    let lines = |own: &[String], key: &str, otherwise: Vec<String>| match given(key) {
        _ if !own.is_empty() => own.to_vec(),
        Some(text) => text.split('\n').filter(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect(),
        None => otherwise,
    };
    let own = &config.overrides.operators_packages_and_channels;
    let packages = lines(own, "operators.packagesAndChannels", packages);
    let space =
        Some(&config.space_required).filter(|text| !text.is_empty()).or_else(|| given("precache.spaceRequired"));
    let space = space.map_or(SPACE, String::as_str);
    let found = PrecachingSpec {
        additional_images: config.additional_images.clone(),
        exclude_precache_patterns: lines(&config.exclude_precache_patterns, "excludePrecachePatterns", Vec::new()),
        operators_indexes: indexes,
        operators_packages_and_channels: packages,
        platform_image,
        space_required: gibibytes(space).ok_or_else(|| SpecError::Space(space.to_owned()))?.to_string(),
    };
    if !found.operators_indexes.is_empty() && found.operators_packages_and_channels.is_empty() {
        return Err(SpecError::NoPackages);
    }
    if found.operators_indexes.is_empty() && found.platform_image.is_empty() {
        return Err(SpecError::Nothing);
    }
    Ok(found)
}

/// A size in whole GiB, rounded up: a number, and a unit of powers of 1000 (`GB`) or of 1024 (`GiB`).
fn gibibytes(text: &str) -> Option<u64> {
    let end = text.rfind(|c: char| c.is_ascii_digit() || c == '.').map_or(0, |at| at + 1);
    let (number, unit) = text.split_at_checked(end)?;
    let number: f64 = number.trim().parse().ok().filter(|number| *number >= 0.0)?;
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let (unit, base) = unit.strip_suffix('i').map_or((unit, 1000.0), |unit| (unit, 1024.0));
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|one| *one == unit)?;
    let bytes = number * f64::powi(base, i32::try_from(power).ok()?);
    let gibibytes = (bytes / f64::powi(1024.0, 3)).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    Some(gibibytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_gibibytes() {
        for (text, expected) in [
            ("35 GiB", Some(35)),
            ("40GB", Some(38)),
            ("1.5 GiB", Some(2)),
            ("100", Some(1)),
            ("1 TiB", Some(1024)),
            ("0", Some(0)),
            ("-1 GiB", None),
            ("GiB", None),
            ("35 XB", None),
            ("", None),
        ] {
            assert_eq!(gibibytes(text), expected, "{text}");
        }
    }

    /// pre-caching-missing-sub-policy and pre-caching-with-configs of section 5.1.
    #[test]
    fn settings_come_before_the_config_map_and_that_before_policies() {
        let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
        let templates =
            Templates { indexes: texts(&["index"]), packages: texts(&["ptp:4.16"]), ..Templates::default() };
        let reference = ("ns".to_owned(), "config".to_owned());
        let find =
            |templates: &Templates, config: Option<&PreCachingConfigSpec>, overrides: &[(&str, &str)], image: &str| {
                let configs: BTreeMap<_, _> = config.cloned().map(|one| (reference.clone(), one)).into_iter().collect();
                let overrides = overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                let wanted = config.is_some().then_some(&reference);
                spec([templates], wanted, &configs, Some(&overrides), image.to_owned())
            };
        let plain = find(&templates, None, &[], "").unwrap();
        assert_eq!((&plain.operators_packages_and_channels, &*plain.space_required), (&texts(&["ptp:4.16"]), "35"));
        let map = [("operators.packagesAndChannels", " a:1 \n\nb:2"), ("precache.spaceRequired", "10 GiB")];
        let of_map = find(&templates, None, &map, "").unwrap();
        assert_eq!((&of_map.operators_packages_and_channels, &*of_map.space_required), (&texts(&["a:1", "b:2"]), "10"));
        let config = PreCachingConfigSpec {
            overrides: Overrides { operators_packages_and_channels: texts(&["c:3"]), ..Overrides::default() },
            space_required: "20 GiB".to_owned(),
            additional_images: texts(&["image"]),
            ..PreCachingConfigSpec::default()
        };
        let of_config = find(&templates, Some(&config), &map, "").unwrap();
        assert_eq!(
            (&of_config.operators_packages_and_channels, &*of_config.space_required, &of_config.additional_images),
            (&texts(&["c:3"]), "20", &texts(&["image"]))
        );
        let none = Templates::default();
        assert!(find(&none, None, &[], "release").is_ok());
        assert_eq!(find(&none, None, &[], ""), Err(SpecError::Nothing));
        let alone = Templates { indexes: texts(&["index"]), ..Templates::default() };
        assert_eq!(find(&alone, None, &[], ""), Err(SpecError::NoPackages));
        let wrong = PreCachingConfigSpec { space_required: "much".to_owned(), ..PreCachingConfigSpec::default() };
        assert_eq!(find(&templates, Some(&wrong), &[], ""), Err(SpecError::Space("much".to_owned())));
        assert_eq!(
            spec([&templates], Some(&reference), &BTreeMap::new(), None, String::new()),
            Err(SpecError::Missing("config".to_owned()))
        );
    }
}
