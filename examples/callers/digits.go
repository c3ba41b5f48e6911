// Reads handwritten digits from Go: each 64 floats of a file, 8 x 8 pixels of 0 to 1, are one. Prints a line for each.
package main

/*
#include <stdlib.h>
#include "digits.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

const pixels, classes = 64, 10 // DIGITS_INPUT_image, DIGITS_OUTPUT_logits

// Digits is a context. One goroutine uses it at a time; several have one each.
type Digits struct {
	arena   unsafe.Pointer
	inputs  C.digits_inputs  // in memory of C, as cgo asks of pointers that are behind pointers
	outputs C.digits_outputs
}

func checked(code C.int) error {
	if code == C.DIGITS_OK {
		return nil
	}
	return errors.New(C.GoString(C.digits_error(code)))
}

func newDigits() (*Digits, error) {
	nbytes := C.digits_arena_size()
	made := &Digits{arena: C.aligned_alloc(C.DIGITS_ALIGNMENT, nbytes)}
	made.inputs.image = (*C.float)(C.calloc(pixels, C.sizeof_float))
	made.outputs.logits = (*C.float)(C.calloc(classes, C.sizeof_float))
	return made, checked(C.digits_init(made.arena, nbytes, unsafe.Pointer(&C.digits_weights)))
}

func (digits *Digits) read(image []byte) (int, error) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(digits.inputs.image)), 4*pixels), image)
	if err := checked(C.digits_run(digits.arena, &digits.inputs, &digits.outputs, nil)); err != nil {
		return 0, err
	}
	best, logits := 0, unsafe.Slice((*float32)(unsafe.Pointer(digits.outputs.logits)), classes)
	for digit, logit := range logits {
		if logit > logits[best] {
			best = digit
		}
	}
	return best, nil
}

func run(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	digits, err := newDigits()
	if err != nil {
		return err
	}
	for ; len(content) >= 4*pixels; content = content[4*pixels:] {
		digit, err := digits.read(content[:4*pixels])
		if err != nil {
			return err
		}
		fmt.Println(digit)
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: digits FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
