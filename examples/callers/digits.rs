//! Reads handwritten digits from Rust: each 64 floats of a file, 8 x 8 pixels of 0 to 1, are one. Prints a line for each.
use std::alloc::{alloc, Layout};
use std::ffi::{c_char, c_int, c_void, CStr};

#[repr(C)]
struct Inputs {
    image: *const f32,
}

#[repr(C)]
struct Outputs {
    logits: *mut f32,
}

extern "C" {
    static digits_weights: u8;
    fn digits_arena_size() -> usize;
    fn digits_init(arena: *mut c_void, nbytes: usize, weights: *const c_void) -> c_int;
    fn digits_run(arena: *mut c_void, inputs: *const Inputs, outputs: *const Outputs, share: *const c_void) -> c_int;
    fn digits_error(code: c_int) -> *const c_char;
}

const ALIGNMENT: usize = 64; // DIGITS_ALIGNMENT
const PIXELS: usize = 64; // DIGITS_INPUT_image
const CLASSES: usize = 10; // DIGITS_OUTPUT_logits

/// A context in memory of its own. It goes to one thread at a time; several threads have one each.
struct Digits {
    arena: *mut c_void,
}

unsafe impl Send for Digits {}

fn checked(code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(digits_error(code)) }.to_string_lossy().into_owned())
}

impl Digits {
    fn new() -> Result<Digits, String> {
        let nbytes = unsafe { digits_arena_size() };
        let arena = unsafe { alloc(Layout::from_size_align(nbytes, ALIGNMENT).unwrap()) } as *mut c_void;
        let weights = unsafe { &digits_weights as *const u8 } as *const c_void;
        checked(unsafe { digits_init(arena, nbytes, weights) })?;
        Ok(Digits { arena })
    }

    fn read(&mut self, image: &[f32; PIXELS]) -> Result<usize, String> {
        let mut logits = [0f32; CLASSES];
        let (inputs, outputs) = (Inputs { image: image.as_ptr() }, Outputs { logits: logits.as_mut_ptr() });
        checked(unsafe { digits_run(self.arena, &inputs, &outputs, std::ptr::null()) })?;
        Ok((0..CLASSES).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap())
    }
}

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("usage: digits FILE")?;
    let bytes = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let floats: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let mut digits = Digits::new()?;
    for image in floats.chunks_exact(PIXELS) {
        println!("{}", digits.read(image.try_into().unwrap())?);
    }
    Ok(())
}
