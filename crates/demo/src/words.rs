//! The word lists that names, descriptions, keywords and dependencies are drawn from.
//!
//! Each list is one text of words in lower case, which [`Words::new`] splits once. Nothing here comes from a real
//! catalogue, except that [`OFFICIAL`] names packages that an Arch-like distribution itself ships, so that
//! dependencies look like dependencies. No word contains `attest`, of which the catalogue adds an exact number.

/// Every list, split into words.
pub(crate) struct Words {
    /// Words for names.
    pub(crate) name: Vec<&'static str>,
    /// Qualities, for descriptions: `fast`.
    pub(crate) adjectives: Vec<&'static str>,
    /// Kinds of software, one word each: `editor`.
    pub(crate) tools: Vec<&'static str>,
    /// The things that software works on, in the plural: `photos`.
    pub(crate) objects: Vec<&'static str>,
    /// The things that software does, in the third person: `converts`.
    pub(crate) verbs: Vec<&'static str>,
    /// Programming languages as they are written in prose.
    pub(crate) languages: Vec<&'static str>,
    /// Desktops and platforms as they are written in prose.
    pub(crate) platforms: Vec<&'static str>,
    /// Starts of coined syllables.
    pub(crate) onsets: Vec<&'static str>,
    /// Middles of coined syllables.
    pub(crate) vowels: Vec<&'static str>,
    /// Ends of coined words.
    pub(crate) codas: Vec<&'static str>,
    /// Names of packages of the distribution; those that most others depend on come first.
    pub(crate) official: Vec<&'static str>,
    /// Given names, for user names.
    pub(crate) people: Vec<&'static str>,
}

impl Words {
    pub(crate) fn new() -> Self {
        let split = |text: &'static str| text.split_ascii_whitespace().collect::<Vec<_>>();
        Self {
            name: split(NAME),
            adjectives: split(ADJECTIVES),
            tools: split(TOOLS),
            objects: split(OBJECTS),
            verbs: split(VERBS),
            languages: split(LANGUAGES),
            platforms: split(PLATFORMS),
            onsets: split(ONSETS),
            vowels: split(VOWELS),
            codas: split(CODAS),
            official: split(OFFICIAL),
            people: split(PEOPLE),
        }
    }
}

const NAME: &str = "
acorn adder agent agile alarm album alder alert alias alloy almond alpha amber anchor ankle anthem antler anvil apex
apple apricot arbor arcade archer argon armor arrow ash aspen aster atlas atom audio aurora autumn avocado axiom axis
badge badger bake balance ballad bamboo banana bandit banjo banner barley barn baron barrel basalt base basil basin
basket bass batch bay bazaar beacon beam bear beaver bee beetle bell bench berry bin birch bird bishop bison bit blade
blaze blend block bloom blossom blue board bolt bonsai book boost border botany bottle bow bowl box branch brass brave
bread breeze brew brick bridge bright brook broom brush bubble bucket buffalo buffer bugle build bulb bundle burrow
bus butter button byte cabin cable cache cactus cake calc calendar camel camera camp canal canary candle cannon canoe
canvas canyon capsule captain caramel caravan card cargo carol carrot cart castle cat catalog cave cedar cello chain
chalk channel chapter charm chart chat check cherry chess chest chime chip chisel chord chrome cider cinder cinema
circle circuit citrus city clamp clay clean clear cliff climb clip clock clone cloud clover club coal coast cobalt
cobra cocoa code coffee coil coin color comet compact compass concept concert condor cone console copper coral cord
core cork corner cosmos cotton cougar counter court cove coyote crab craft crane crate crater crayon creek crest
cricket crimson crow crown cruise crystal cube cursor curtain curve cyan cycle cypress daemon dagger dahlia daisy dance
dart dash data dawn day deck deep deer delta den depot desert desk dew dial diamond dice digit dingo disk dock dolphin
dome domino donkey door dot dove draft dragon drake dream drift drill drum duck dune dusk dust eagle earth echo eclipse
edge edit eel elastic elder electron element elk elm ember emerald engine envoy epoch equal essay ether event ever
exact fable fabric falcon fall fan farm fast fawn feather fennel fern ferret ferry fiber fiddle field fig file film
filter finch finger fire fish fjord flag flake flame flare flash fleet flint float flock flood flora flow flower fluid
flute fly foam focus fog fold folder font forest forge fork form fort fossil fountain fox frame free fresh frog frost
fruit fuel fuse galaxy gale game gamma garden garlic garnet gate gauge gazelle gear gecko gem ghost giant ginger giraffe
glacier glade glass glide globe glow glyph goat gold goose gopher grain granite grape graph grass gravel gravity green
grid grip grove guard guide guitar gull gust hail halo hammer harbor hare harp harvest hash haven hawk hazel heart
hedge helix helm hemlock herald herb hermit heron hex hill hive hollow holly honey hook hop horizon horn hornet horse
host house hub humble hummer hydra ibis ice icon idea igloo image impulse inbox index indigo ink inlet input insight
iris iron island ivory ivy jackal jade jaguar jam jar jasmine jay jet jewel journal journey judge juggler jungle juniper
jupiter kayak keel kelp kernel kestrel kettle key keyboard kite kiwi knife knight knot koala kraken label lace ladder
lagoon lake lamp lance lantern lapis larch lark laser lasso latch lattice launch laurel lava lavender layer leaf league
ledge ledger lemon lemur lens leopard letter level lever light lilac lily lime limit linen link lion list little lizard
llama lobster local loch locket log logic loom loop lotus lumen lunar lynx lyric macro magnet magpie mango mantis maple
marble margin marina mark market marlin marmot mars marsh mask mason mast matrix meadow medal media melody melon memo
menu mercury mesa mesh meteor meter micro mile mill mimic mint mirror mist mixer mobile model module mole monitor
monkey moon moose morning mortar mosaic moss moth motor mountain mouse mule mural muse music mustang nano narwhal native
nebula nectar needle neon neptune nest net nickel night nimbus node noise north notebook notes nova oak oasis oat ocean
octave octopus olive omega onion onyx opal open optic oracle orange orbit orca orchard orchid origin oriole osprey otter
outpost owl oxide oyster packet paddle page paint palace palette palm panda panel panther paper papaya parade parcel
park parrot parsley parser pastel patch path patrol pattern peach peacock peak pearl pebble pecan pelican pen pencil
penguin pepper petal phantom phase phoenix phone photo piano pigeon pilot pine pipe pixel pizza plain planet plank
plasma plate plaza plover plug plum pocket poem point polar pollen pond pony poplar poppy port portal post potato prairie
press prime print prism probe proton proxy puffin pulse puma pump puzzle quail quark quartz queen quest
queue quick quiet quill quilt rabbit raccoon radar radio radius raft rail rain rainbow ram ranch range ranger rapid raven
ray reader record red reed reef relay remote rhino ribbon rice ridge ring ripple river road robin robot rocket root rope
rose round rover ruby rune runner rust saber sable saddle saffron sage sail salmon salt sand sapphire satchel
saturn savanna scale scarab scarf scene school scope scout screen script scroll sea seal search season seed sensor
sentry sequoia shade shadow shark sheep shelf shell shelter shield shift ship shore shuttle sierra signal silent silk
silver simple siren sketch skiff sky slate sled slice slope sloth smart smoke snail snake snap snow socket soda solar
solid sonar sonic sound south spark sparrow spectrum sphere spice spider spiral spirit splash sponge spool spoon spring
sprite spruce square squid stack stag stage stamp star static station steam steel stem stencil step stone stork storm
story stove stream street string studio sugar summer summit sun surf swallow swan swift switch sword sync table tackle
tag talon tango tape target teal temple tempo tent terra text thistle thorn thread thunder thyme tide tiger timber time
tinder tiny titan toast token tomato tone topaz torch tortoise totem toucan tower town track trail train tram trellis
tree trek triad tribe trident trigger trout truffle trumpet trunk tulip tundra tunnel turbo turnip turtle twig
twin ultra umbra unicorn unit urban valley vanilla vapor vault vector velvet venus verse vertex vessel video view viking
village vine vinyl violet viper vision vista vivid voice volcano volt vortex voyage vulture wafer wagon walnut walrus
wander warp wasp watch water wave wax weasel weather web wedge whale wheat wheel whisk whisper wicker widget willow wind
window wing winter wire wisp wizard wolf wombat wood wool word world wren yacht yak yard yarn yarrow year yellow yew
yonder zebra zen zenith zephyr zest zinc zipper zircon zodiac zone";

const ADJECTIVES: &str = "
fast simple minimal lightweight modern small tiny portable elegant robust flexible modular extensible powerful advanced
cross-platform multi-threaded asynchronous experimental interactive graphical keyboard-driven configurable scriptable
declarative incremental distributed encrypted secure private offline self-hosted decentralized open free unofficial
alternative efficient low-latency high-performance real-time streaming concurrent embedded standalone headless
command-line terminal-based web-based native pure type-safe statically-typed dependency-free zero-configuration
user-friendly opinionated hackable pluggable tileable themeable animated colorful dark bright flat rounded pixel-perfect
responsive accessible multilingual collaborative automatic intelligent reproducible deterministic fault-tolerant
scalable reliable practical classic retro futuristic cute fancy clean compact complete comprehensive generic high-level
low-level idiomatic functional reactive lock-free immutable lossless adaptive predictive procedural parallel";

const TOOLS: &str = "
editor viewer player manager launcher browser client server daemon library framework toolkit compiler interpreter
debugger profiler linter formatter parser generator converter encoder decoder emulator simulator renderer compositor
shell terminal multiplexer monitor scanner analyzer indexer scheduler downloader uploader crawler proxy gateway router
firewall tracker recorder mixer synthesizer sequencer tuner visualizer organizer planner calendar notebook calculator
clock timer dashboard widget applet panel dock wallpaper screensaver theme screenshot-tool clipboard-manager
password-manager file-manager package-manager window-manager session-manager archiver backup-tool sync-tool game
roguelike platformer puzzle engine plugin extension driver module bootloader kernel wrapper frontend backend bindings
bridge adapter importer exporter validator sandbox container-runtime orchestrator build-system task-runner test-runner
template-engine database cache queue broker logger benchmark decompiler disassembler assembler hex-editor spell-checker
dictionary translator transcriber typesetter spreadsheet painter modeler slicer plotter";

const OBJECTS: &str = "
files photos images videos songs playlists podcasts documents spreadsheets presentations fonts icons cursors wallpapers
archives backups snapshots disks partitions filesystems volumes drives devices sensors keyboards mice joysticks
controllers printers scanners cameras microphones monitors screens windows workspaces tabs bookmarks passwords keys
certificates tokens secrets accounts contacts mails messages chats channels feeds articles books comics manga novels
recipes notes tasks reminders calendars events timers logs metrics traces alerts dashboards queries tables rows records
schemas migrations databases caches queues streams packets sockets connections tunnels proxies routers networks hosts
servers clusters nodes containers virtual-machines kernels modules drivers firmware patches packages repositories
branches commits diffs releases dependencies licenses tests benchmarks builds artifacts pipelines workflows scripts
macros templates snippets grammars parsers trees graphs matrices vectors tensors meshes textures shaders sprites
levels maps routes satellites planets stars galaxies molecules proteins genomes sequences equations proofs formulas
circuits boards chips robots drones bicycles trains weather-reports stock-prices invoices receipts budgets wallets coins
subtitles lyrics chords scores samples plugins effects filters colors gradients palettes themes skins layouts";

const VERBS: &str = "
converts monitors downloads uploads renders plays records streams compresses extracts encrypts decrypts signs verifies
indexes searches sorts filters merges splits compares diffs patches formats lints parses compiles transpiles minifies
packs unpacks mounts backs-up restores synchronizes mirrors caches queues schedules runs launches stops watches traces
profiles benchmarks tests mocks generates imports exports translates transcribes annotates tags renames moves copies
cleans shares publishes fetches scrapes crawls resolves proxies balances throttles measures plots draws paints animates
simulates emulates controls configures manages organizes documents explains";

const LANGUAGES: &str = "
C C++ Rust Go Python Perl Ruby Haskell OCaml Lua JavaScript TypeScript Java Kotlin Scala Clojure Elixir Erlang Zig Nim
Crystal Julia R Fortran Swift Vala D Bash Scheme Racket";

const PLATFORMS: &str = "
Linux GNOME KDE Plasma Xfce Wayland X11 Sway Hyprland i3 Openbox Cinnamon MATE LXQt systemd Android Windows Emacs Vim
Neovim Docker Kubernetes Jupyter Blender GIMP Inkscape OBS Firefox Chromium Steam Wine PipeWire ALSA Vulkan OpenGL";

/// Simple onsets are repeated, so that most coined words can be pronounced.
const ONSETS: &str = "
b c d f g h j k l m n p r s t v w z b c d f g h k l m n p r s t v m n r s l t k bl br ch cl cr dr fl fr gl gr kl kr
pl pr qu sc sh sk sl sm sn sp st sw th tr tw x y";

const VOWELS: &str = "a e i o u a e i o u a e i o u a e i o u a e i o ai au ea ee ia io oo ou y";

/// A lone hyphen stands for an empty end.
const CODAS: &str = "
- - - - - - - - - - - - d g k l l m m n n n p r r s s t t x z ck ff ld lf ll mp nd ng nk nt nx rb rd rk rn rt sh sk ss
st th";

const PEOPLE: &str = "
aaron ada adam agnes aidan alan albert alex alice alina amir amy ana andre andy anika anna anton ari arne arthur astrid
axel barbara bea ben bert bianca bjorn bo boris brian bruno carla carlos cedric chen chris clara colin cora dana daniel
dario david dean denis diana diego dirk dora dylan eddie edgar elena eli elias ella elsa emil emma enzo erik esther eva
evan fabian felix fiona flora frank frida gabi georg gina goran greta gus hana hannah hans hector heidi helge henry hugo
ian ida igor ilse imre ines ingo irene isaac ivan jack jakob jan jana janek jens jin joe johan jonas jorge josef juan
judith julia jun kai karen karl kasia kate ken kim klaus kurt lars lea lena leo lev liam lin linda lisa lorenz lotte
louis luca lucy luis luka maja malik marc maria marek mario marta martin mateo max maya mei mia mika milan mina mira
moritz nadia natan nico nils nina noah nora olaf oleg olga oliver omar oskar otto pablo paula pavel pedro peter petra
pia quentin rafael rana ravi remi rene rita rob roman rosa ruben sam sana sara selma sergei silas simon sina sofia sonja
stella sven tamas tanja tara theo tilda timo tobias tom toni tove udo uma ursula vera viktor vlad wanda wei wim xander
yael yara yuki yuri zane zoe zora";

const OFFICIAL: &str = "
glibc gcc-libs python qt6-base gtk3 bash git cmake nodejs zlib openssl qt5-base hicolor-icon-theme glib2 python-numpy perl
ninja go rust make meson curl libx11 npm python-setuptools python-requests gtk4 alsa-lib mesa jdk-openjdk java-runtime ruby
r nss ffmpeg libxml2 sqlite boost boost-libs sdl2 libglvnd freetype2 fontconfig cairo pango gdk-pixbuf2 libpng libjpeg-turbo
python-build python-installer python-wheel python-pip python-pyqt5 python-pyqt6 python-pillow python-yaml python-click
python-scipy python-pandas python-matplotlib python-attrs python-six python-dateutil python-cryptography python-lxml
python-psutil python-gobject python-pytest python-flask python-jinja python-rich python-tqdm python-aiohttp python-dbus
python-pydantic python-typing_extensions python-packaging python-poetry-core python-hatchling python-flit-core
python-docutils python-sphinx cython swig doxygen graphviz pkgconf autoconf automake libtool m4 bison flex gettext intltool
gcc clang llvm llvm-libs lld gdb valgrind strace yasm nasm cargo maven gradle ant scons waf electron electron32
electron34 webkit2gtk webkit2gtk-4.1 libsecret libnotify libappindicator-gtk3 xdg-utils xdg-desktop-portal desktop-file-utils
shared-mime-info gvfs polkit dbus systemd systemd-libs udev linux linux-headers linux-api-headers dkms kmod util-linux
coreutils findutils grep sed gawk tar gzip xz zstd lz4 bzip2 unzip zip p7zip rsync wget openssh gnupg gpgme
ca-certificates ncurses readline libedit pcre pcre2 expat libffi gmp mpfr mpc libusb libusb-compat hidapi libevdev libinput
libxkbcommon libxkbcommon-x11 libxcb xcb-util xcb-util-wm xcb-util-keysyms xcb-util-cursor libxext libxrender libxrandr
libxinerama libxcursor libxi libxtst libxss libxft libxpm libxmu libxt libxcomposite libxdamage libxfixes xorg-server
xorg-xrandr xorg-xprop xorgproto wayland wayland-protocols wlroots egl-wayland vulkan-icd-loader vulkan-headers glslang
shaderc spirv-tools opencl-icd-loader opencl-headers cuda glew glfw glm freeglut libpulse pulseaudio pipewire jack2 libsndfile
libsamplerate portaudio fluidsynth libogg libvorbis flac opus lame libmad mpg123 taglib gstreamer gst-plugins-base
gst-plugins-good gst-plugins-bad gst-libav libvlc mpv vlc libass libbluray libdvdread v4l-utils opencv imagemagick
graphicsmagick libwebp libtiff giflib librsvg poppler poppler-glib poppler-qt6 ghostscript cups sane libraw lcms2 openexr
gegl babl gimp inkscape blender qt5-svg qt5-declarative qt5-multimedia qt5-tools qt5-webengine qt5-x11extras qt6-svg
qt6-declarative qt6-multimedia qt6-tools qt6-webengine qt6-wayland qt6-5compat extra-cmake-modules kio ki18n kconfig
kcoreaddons kwidgetsaddons kxmlgui kirigami plasma-workspace libplasma sdl2_image sdl2_ttf sdl2_mixer sdl2_net sdl3 sfml
openal libtheora physfs lua lua51 lua53 luajit tcl tk guile php php-gd composer ghc ghc-libs cabal-install stack ocaml dune
opam erlang elixir julia nim zig vala gobject-introspection gtk-doc dconf gsettings-desktop-schemas libadwaita libhandy
gtksourceview5 vte3 gspell enchant hunspell aspell appstream flatpak docker podman kubectl helm ansible terraform vagrant
virtualbox qemu libvirt postgresql postgresql-libs mariadb mariadb-libs redis memcached rabbitmq protobuf grpc abseil-cpp
fmt spdlog nlohmann-json yaml-cpp jsoncpp rapidjson catch2 gtest eigen fftw openblas lapack blas hdf5 netcdf gdal proj geos
suitesparse openmpi hwloc onetbb gsl cgal gnuplot octave sagemath texlive-basic texlive-latex texlive-core pandoc asciidoc
asciidoctor xmlto docbook-xsl libxslt help2man scdoc man-db groff jq yq ripgrep fd fzf bat tmux screen zsh fish vim neovim
emacs nano firefox chromium thunderbird libreoffice-fresh networkmanager wpa_supplicant iptables nftables iproute2 dnsmasq
bind nginx apache libpcap libnl libmnl bluez bluez-libs avahi samba cifs-utils nfs-utils fuse2 fuse3 libfuse btrfs-progs
e2fsprogs dosfstools parted gptfdisk lvm2 cryptsetup libarchive pacman pacman-contrib fakeroot debugedit expac libalpm
tesseract leptonica libuv libevent libev c-ares libssh libssh2 nghttp2 libsodium libgcrypt gnutls nettle libidn2 libpsl
libunistring icu libical libsoup libsoup3 json-glib libgee at-spi2-core libcanberra libwnck3 startup-notification dunst
rofi feh maim xclip wl-clipboard slurp grim sway i3-wm bspwm polybar waybar picom dmenu";
