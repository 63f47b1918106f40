//! Kinds of packages: the prefixes or suffixes of their names, their build tools, and their descriptions.

/// One kind of package.
pub(crate) struct Ecosystem {
    pub(crate) prefix: &'static str,
    pub(crate) suffix: &'static str,
    /// The share of this kind among all families, relative to the others.
    pub(crate) weight: u32,
    /// Whether its families look like those of applications (often also with `-git` and `-bin`) or like those of
    /// modules.
    pub(crate) is_application: bool,
    /// The first dependencies of such a package.
    pub(crate) runtime: &'static [&'static str],
    /// The first build dependencies of such a package.
    pub(crate) build: &'static [&'static str],
    /// Templates of descriptions, see `text`; if empty, those of an application.
    pub(crate) descriptions: &'static [&'static str],
    /// The home page of such packages: a template in which `{s}` is the stem; `None` means a code forge.
    pub(crate) home: Option<&'static str>,
}

const fn application(prefix: &'static str, suffix: &'static str, weight: u32) -> Ecosystem {
    Ecosystem {
        prefix,
        suffix,
        weight,
        is_application: true,
        runtime: &["glibc", "gcc-libs"],
        build: &[],
        descriptions: &[],
        home: None,
    }
}

const fn module(prefix: &'static str, suffix: &'static str, weight: u32) -> Ecosystem {
    Ecosystem { is_application: false, runtime: &[], ..application(prefix, suffix, weight) }
}

/// The index of plain applications in [`ECOSYSTEMS`].
pub(crate) const APPLICATION: usize = 0;
/// The index of C and C++ libraries in [`ECOSYSTEMS`].
pub(crate) const LIBRARY: usize = 1;
/// The index of Python modules in [`ECOSYSTEMS`].
pub(crate) const PYTHON: usize = 2;

/// Every kind of package; the constants above are indices.
pub(crate) static ECOSYSTEMS: &[Ecosystem] = &[
    application("", "", 560),
    Ecosystem {
        build: &["cmake", "meson", "ninja"],
        descriptions: &[
            "{A} {l} library for {n}",
            "{l} library that {v} {n}",
            "Library to work with {n} and {n} in {l}",
            "{A} {t} library with {l} bindings",
            "Shared library of {S}, a {a} {t}",
        ],
        ..application("lib", "", 45)
    },
    Ecosystem {
        runtime: &["python"],
        build: &["python-build", "python-installer", "python-wheel", "python-setuptools"],
        descriptions: &[
            "Python bindings for {s}",
            "Python library for {a} {n}",
            "{A} Python {t} for {n}",
            "A Python module that {v} {n}",
            "Read and write {n} from Python",
            "Python client for the {S} API",
            "Pure Python {t} with {a} {n}",
        ],
        home: Some("https://python.example.org/project/{s}/"),
        ..module("python-", "", 90)
    },
    Ecosystem {
        runtime: &["perl"],
        build: &["perl"],
        descriptions: &[
            "Perl extension for {n}",
            "Perl/CPAN module {S}",
            "{A} {n} for Perl",
            "Perl interface to {s}, a {a} {t}",
        ],
        home: Some("https://perl.example.org/dist/{S}"),
        ..module("perl-", "", 40)
    },
    Ecosystem {
        runtime: &["ruby"],
        build: &["ruby"],
        descriptions: &["A Ruby gem that {v} {n}", "{A} {t} for Ruby", "Ruby {t} for {n} and {n}"],
        home: Some("https://ruby.example.org/gems/{s}"),
        ..module("ruby-", "", 26)
    },
    Ecosystem {
        runtime: &["nodejs"],
        build: &["npm"],
        descriptions: &[
            "{A} {t} for Node.js",
            "Node.js module that {v} {n}",
            "{A} JavaScript {t} for {n}",
        ],
        home: Some("https://node.example.org/package/{s}"),
        ..module("nodejs-", "", 18)
    },
    Ecosystem {
        runtime: &["ghc-libs"],
        build: &["ghc", "cabal-install"],
        descriptions: &[
            "{A} {n} for Haskell",
            "Haskell library for {a} {n}",
            "Type-safe {n} in Haskell",
        ],
        home: Some("https://haskell.example.org/package/{s}"),
        ..module("haskell-", "", 15)
    },
    Ecosystem {
        runtime: &["r"],
        build: &["gcc"],
        descriptions: &[
            "{A} models of {n}",
            "Statistics of {n} and {n}",
            "Tools for {a} analysis of {n}",
        ],
        home: Some("https://r.example.org/package={s}"),
        ..module("r-", "", 42)
    },
    Ecosystem {
        runtime: &["python", "boost"],
        build: &["cmake", "python-setuptools"],
        descriptions: &["ROS - The {s} package: {a} {n}", "ROS - {A} {t} for robots and {n}"],
        ..module("ros-noetic-", "", 12)
    },
    Ecosystem {
        runtime: &["python"],
        build: &["cmake", "python-setuptools"],
        descriptions: &[
            "ROS 2 - {A} {t} for robots and {n}",
            "ROS 2 - messages and services of {s}",
        ],
        ..module("ros2-humble-", "", 10)
    },
    Ecosystem {
        runtime: &["glibc"],
        build: &["meson", "cmake"],
        descriptions: &["{A} {l} library for {n} (32-bit)", "{S}, a {a} {t} (32 bit)"],
        ..module("lib32-", "", 22)
    },
    Ecosystem {
        build: &["cmake", "gcc", "ninja"],
        descriptions: &["{A} {l} library for {n} (mingw-w64)", "{S}, a {a} {t} (mingw-w64)"],
        ..module("mingw-w64-", "", 34)
    },
    Ecosystem {
        build: &["fontconfig"],
        descriptions: &[
            "{A} sans-serif typeface with {n}",
            "The {S} typeface, {a} and {a}",
            "{A} monospaced font for {n}",
        ],
        ..module("ttf-", "", 26)
    },
    Ecosystem {
        descriptions: &["{A} OpenType serif for {n}", "The {S} family of {a} OpenType fonts"],
        ..module("otf-", "", 8)
    },
    Ecosystem {
        runtime: &["vim"],
        descriptions: &["{A} {t} for Vim", "Vim plugin that {v} {n}"],
        ..module("vim-", "", 11)
    },
    Ecosystem {
        runtime: &["neovim"],
        descriptions: &["{A} {t} for Neovim", "Neovim plugin that {v} {n}, written in Lua"],
        ..module("neovim-", "", 7)
    },
    Ecosystem {
        runtime: &["emacs"],
        descriptions: &["{A} {t} for Emacs", "Emacs minor mode that {v} {n}"],
        ..module("emacs-", "", 12)
    },
    Ecosystem {
        runtime: &["dconf"],
        build: &["glib2", "gettext"],
        descriptions: &[
            "Show {n} in the GNOME Shell panel",
            "A GNOME Shell extension that {v} {n}",
        ],
        ..module("gnome-shell-extension-", "", 15)
    },
    Ecosystem {
        runtime: &["lua"],
        descriptions: &["{A} {t} for Lua", "Lua library that {v} {n}"],
        ..module("lua-", "", 5)
    },
    Ecosystem {
        runtime: &["php"],
        descriptions: &["PHP extension that {v} {n}", "{A} {t} for PHP"],
        ..module("php-", "", 7)
    },
    Ecosystem {
        runtime: &["ocaml"],
        build: &["dune"],
        descriptions: &["{A} {n} for OCaml", "OCaml bindings to {s}"],
        ..module("ocaml-", "", 6)
    },
    Ecosystem {
        runtime: &["plasma-workspace"],
        build: &["extra-cmake-modules"],
        descriptions: &["Plasma 6 applet that {v} {n}", "{A} widget for Plasma with {n}"],
        ..module("plasma6-applets-", "", 6)
    },
    Ecosystem {
        descriptions: &["{A} {t} for OBS Studio", "OBS Studio plugin that {v} {n}"],
        ..module("obs-", "", 4)
    },
    Ecosystem {
        build: &["zip"],
        descriptions: &["Firefox extension that {v} {n}", "{A} {t} for Firefox"],
        ..module("firefox-extension-", "", 5)
    },
    Ecosystem {
        runtime: &["texlive-basic"],
        descriptions: &["LaTeX class for {a} {n}", "{A} {n} for LaTeX and XeTeX"],
        ..module("texlive-", "", 4)
    },
    Ecosystem {
        runtime: &["zsh"],
        descriptions: &["{A} {t} for Zsh", "Zsh plugin that {v} {n}"],
        ..module("zsh-", "", 4)
    },
    Ecosystem {
        runtime: &["kmod"],
        build: &["bc", "kmod"],
        descriptions: &["The Linux kernel and modules with the {S} patches for {a} {n}"],
        ..module("linux-", "", 5)
    },
    Ecosystem {
        runtime: &["dkms"],
        descriptions: &["Kernel module for {S} {n} (DKMS)", "Driver of {S} {t} hardware (DKMS)"],
        ..module("", "-dkms", 6)
    },
    Ecosystem {
        descriptions: &[
            "{A} and {a} theme for {p}, {p} and {p}",
            "The {S} theme for GTK 3 and GTK 4",
        ],
        ..module("", "-gtk-theme", 7)
    },
    Ecosystem {
        descriptions: &["{A} icons for {p} and {p}", "The {S} icon theme with {a} icons"],
        ..module("", "-icon-theme", 7)
    },
];
