//! Compiles what `src/libtorch.cpp` asks of libtorch beyond tch, and links libtorch whole.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=src/libtorch.cpp");
    let Ok(libraries) = std::env::var("DEP_TCH_LIBTORCH_LIB") else {
        panic!("torch-sys did not say where libtorch is: it supports Linux and macOS");
    };
    let include = Path::new(&libraries).with_file_name("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(include)
        .file("src/libtorch.cpp")
        .compile("torchleak_libtorch");
    // libtorch.so names the libraries of the build, those of CUDA among them, that register themselves when they are
    // loaded. Nothing calls into it, so the linker would leave it out.
    println!("cargo:rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
}
