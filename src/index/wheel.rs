//! The name of a wheel, which says what it is and where it fits.

use std::collections::BTreeSet;

use pep440_rs::{Version, VersionSpecifiers};

/// What the name of a wheel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelName {
    /// The project, in lower case.
    pub project: String,
    /// The version, with its local part.
    pub version: Version,
    pythons: Vec<String>,
    abis: Vec<String>,
    platforms: Vec<String>,
}

/// What a wheel has to fit.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// The minor version of Python 3.
    pub python_minor: u32,
    /// As in [`std::env::consts::OS`].
    pub os: &'a str,
    /// As in [`std::env::consts::ARCH`].
    pub arch: &'a str,
}

impl Machine<'static> {
    /// This machine with that Python.
    pub fn this(python_minor: u32) -> Self {
        Self { python_minor, os: std::env::consts::OS, arch: std::env::consts::ARCH }
    }
}

impl WheelName {
    /// Reads `project-version(-build)-python-abi-platform.whl`.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(name: &str) -> Result<Self, String> {
        let stem = name.strip_suffix(".whl").ok_or("its name does not end in .whl")?;
        let parts: Vec<&str> = stem.split('-').collect();
        let (project, version, tags) = match parts[..] {
            [project, version, .., python, abi, platform] if (5..=6).contains(&parts.len()) => {
                (project, version, [python, abi, platform])
            }
            _ => return Err("its name is not PROJECT-VERSION-PYTHON-ABI-PLATFORM.whl".to_owned()),
        };
        let version = version.parse().map_err(|_| format!("`{version}` in its name is no version"))?;
        let [pythons, abis, platforms] = tags.map(|tag| tag.split('.').map(str::to_owned).collect());
        Ok(Self { project: project.to_ascii_lowercase(), version, pythons, abis, platforms })
    }

    /// Whether it can be installed there. What the C library has to be is left to the installer.
    pub fn fits(&self, machine: &Machine<'_>) -> bool {
        self.fits_python(machine.python_minor) && self.platforms.iter().any(|tag| fits_platform(tag, machine))
    }

    fn fits_python(&self, minor: u32) -> bool {
        let exactly = format!("cp3{minor}");
        let has_abi = |wanted: &str| self.abis.iter().any(|abi| abi == wanted);
        self.pythons.iter().any(|tag| {
            if tag == "py3" || *tag == format!("py3{minor}") {
                return has_abi("none");
            }
            // The stable ABI of an older Python serves every later one.
            let since = tag.strip_prefix("cp3").and_then(|since| since.parse::<u32>().ok());
            (*tag == exactly && (has_abi(&exactly) || has_abi("none")))
                || (has_abi("abi3") && since.is_some_and(|since| since <= minor))
        })
    }

    /// The Pythons it is for, for a person: `3.12`, or `3.13t` without the global lock.
    pub fn python_versions(&self) -> BTreeSet<(u32, String)> {
        let versions = self.pythons.iter().filter_map(|tag| {
            let minor: u32 = tag.strip_prefix("cp3")?.parse().ok()?;
            let ending = if self.abis.iter().any(|abi| *abi == format!("{tag}t")) {
                "t"
            } else if self.abis.iter().any(|abi| abi == "abi3") {
                " or later"
            } else {
                ""
            };
            Some((minor, format!("3.{minor}{ending}")))
        });
        versions.collect()
    }

    /// Whether its platform is that of the machine, whatever the Python.
    pub fn fits_platform(&self, machine: &Machine<'_>) -> bool {
        self.platforms.iter().any(|tag| fits_platform(tag, machine))
    }
}

fn fits_platform(tag: &str, machine: &Machine<'_>) -> bool {
    let (kinds, arch): (&[&str], _) = match (machine.os, machine.arch) {
        ("macos", "aarch64") => (&["macosx"], "arm64"),
        ("macos", arch) => (&["macosx"], arch),
        (_, arch) => (&["linux", "manylinux"], arch),
    };
    let is_for = |ending: &str| tag.strip_suffix(ending).is_some_and(|rest| rest.ends_with('_'));
    tag == "any"
        || (kinds.iter().any(|kind| tag.starts_with(kind))
            && (is_for(arch) || (machine.os == "macos" && is_for("universal2"))))
}

/// Whether a Python satisfies `requires-python`. Of a minor version the newest is meant; what cannot be read asks for
/// nothing, as installers have it.
pub fn satisfies(requires: Option<&str>, python_minor: u32) -> bool {
    let newest = Version::new([3, u64::from(python_minor), 99]);
    requires
        .and_then(|text| text.parse::<VersionSpecifiers>().ok())
        .is_none_or(|specifiers| specifiers.contains(&newest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const LINUX: Machine<'static> = Machine { python_minor: 12, os: "linux", arch: "x86_64" };

    #[rstest]
    #[case("torch-2.8.0.dev20250527+cu128-cp312-cp312-manylinux_2_28_x86_64.whl", true)]
    #[case("torch-2.8.0-cp312-cp312-linux_x86_64.whl", true)]
    #[case("torch-2.8.0-1-cp312-cp312-linux_x86_64.whl", true)]
    #[case("torch-2.8.0-cp310-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", true)]
    #[case("torch-2.8.0-py3-none-any.whl", true)]
    #[case("torch-2.8.0-py2.py3-none-any.whl", true)]
    #[case("torch-2.8.0-cp312-cp312t-linux_x86_64.whl", false)]
    #[case("torch-2.8.0-cp313-cp313-linux_x86_64.whl", false)]
    #[case("torch-2.8.0-cp313-abi3-linux_x86_64.whl", false)]
    #[case("torch-2.8.0-cp311-cp311-linux_x86_64.whl", false)]
    #[case("torch-2.8.0-cp312-cp312-linux_aarch64.whl", false)]
    #[case("torch-2.8.0-cp312-cp312-win_amd64.whl", false)]
    #[case("torch-2.8.0-cp312-none-macosx_11_0_arm64.whl", false)]
    #[case("torch-2.8.0-cp312-cp312-musllinux_1_2_x86_64.whl", false)]
    fn a_name_says_whether_a_wheel_fits(#[case] name: &str, #[case] fits: bool) {
        assert_eq!(WheelName::parse(name).unwrap().fits(&LINUX), fits);
    }

    #[test]
    fn a_mac_takes_its_own() {
        let mac = Machine { python_minor: 12, os: "macos", arch: "aarch64" };
        let fits = |name: &str| WheelName::parse(name).unwrap().fits(&mac);
        assert!(fits("torch-2.8.0-cp312-none-macosx_11_0_arm64.whl"));
        assert!(fits("torch-2.8.0-cp312-none-macosx_11_0_universal2.whl"));
        assert!(!fits("torch-2.8.0-cp312-none-macosx_11_0_x86_64.whl"));
    }

    #[test]
    fn the_version_keeps_its_local_part() {
        let name = WheelName::parse("torch-2.9.0a0+git0123abc-cp312-cp312-linux_x86_64.whl").unwrap();
        assert_eq!(
            (name.project.as_str(), name.version.to_string().as_str()),
            ("torch", "2.9.0a0+git0123abc")
        );
    }

    #[rstest]
    #[case("torch-2.8.0.tar.gz", ".whl")]
    #[case("torch-2.8.0.whl", "PYTHON")]
    #[case("torch-two-cp312-cp312-any.whl", "`two`")]
    #[case("", ".whl")]
    fn what_is_no_name_of_a_wheel_says_why(#[case] name: &str, #[case] why: &str) {
        let error = WheelName::parse(name).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case(None, true)]
    #[case(Some(">=3.9.0"), true)]
    #[case(Some(">=3.12.4"), true)]
    #[case(Some("<3.12"), false)]
    #[case(Some("garbage"), true)]
    fn the_python_that_a_file_asks_for_is_heeded(#[case] requires: Option<&str>, #[case] fits: bool) {
        assert_eq!(satisfies(requires, 12), fits);
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_an_error(text in "\\PC{0,60}") {
            if let Ok(name) = WheelName::parse(&text) {
                let _ = (name.fits(&LINUX), name.python_versions());
            }
        }
    }
}
