//! Builds the C++ shim against the libtorch that `torch-sys` found, and gives the worker a run path to it.
//!
//! The run path is a RUNPATH (new dtags), which `LD_LIBRARY_PATH` of another machine overrides.

use std::env;
use std::fs;
use std::path::PathBuf;

/// What c10d's header of the Gloo group includes, and libtorch comes without; `shim/c10d.cpp` declares what it needs.
const GLOO_HEADERS: [&str; 5] =
    ["algorithm.h", "common/error.h", "context.h", "rendezvous/store.h", "transport/device.h"];

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let lib = PathBuf::from(env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys tells where libtorch is"));
    let include = lib.with_file_name("include");
    let own = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("include");
    for header in GLOO_HEADERS {
        let path = own.join("gloo").join(header);
        fs::create_dir_all(path.parent().expect("has a folder")).expect("the output folder can be written");
        fs::write(path, "").expect("the output folder can be written");
    }
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .warnings(false)
        .extra_warnings(false)
        .flag("-fopenmp")
        .include("shim")
        .include(&own)
        .define("USE_C10D_GLOO", None)
        // `-isystem`: libtorch's headers are not ours to warn about.
        .flag("-isystem")
        .flag(include.display().to_string())
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include").display().to_string())
        .file("shim/operators.cpp")
        .file("shim/allocator.cpp")
        .file("shim/c10d.cpp")
        .compile("slapo_shim");
    // After the shim, which needs them, whatever order the linker sees the other crates in.
    for library in ["torch_cpu", "c10", "gomp"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{}", lib.display());
}
