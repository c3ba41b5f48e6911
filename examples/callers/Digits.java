import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/** Reads handwritten digits, on Android or on any Java. An instance is for one thread at a time. */
public final class Digits {
    static {
        System.loadLibrary("digits_jni");
    }

    private static final int PIXELS = 64, CLASSES = 10, ALIGNMENT = 64;

    private final ByteBuffer arena = ByteBuffer.allocateDirect(arenaSize() + ALIGNMENT).alignedSlice(ALIGNMENT);
    private final FloatBuffer logits = floats(CLASSES);

    public Digits() {
        check(init(arena));
    }

    private static native int arenaSize();

    private static native int init(ByteBuffer arena);

    private static native int run(ByteBuffer arena, FloatBuffer image, FloatBuffer logits);

    private static native String error(int code);

    /** A buffer outside of Java's heap, which C reads and writes in place. */
    public static FloatBuffer floats(int count) {
        return ByteBuffer.allocateDirect(4 * count).order(ByteOrder.nativeOrder()).asFloatBuffer();
    }

    private static void check(int code) {
        if (code != 0) throw new IllegalStateException(error(code));
    }

    /** The digit in a picture: 8 x 8 pixels of 0 to 1, in a buffer of {@link #floats}. */
    public int read(FloatBuffer image) {
        check(run(arena, image, logits));
        int best = 0;
        for (int digit = 1; digit < CLASSES; digit++) if (logits.get(digit) > logits.get(best)) best = digit;
        return best;
    }

    /** Prints a line for each 64 floats of a file. */
    public static void main(String[] words) throws IOException {
        FloatBuffer numbers = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[0]))).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        Digits digits = new Digits();
        FloatBuffer image = floats(PIXELS);
        for (int at = 0; at + PIXELS <= numbers.limit(); at += PIXELS) {
            image.put(0, numbers, at, PIXELS);
            System.out.println(digits.read(image));
        }
    }
}
