/* Between Digits.java and the C project digits. Buffers are outside of Java's heap, so nothing is copied. */
#include <jni.h>

#include "digits.h"

JNIEXPORT jint JNICALL Java_Digits_arenaSize(JNIEnv *env, jclass class)
{
    (void)env;
    (void)class;
    return (jint)digits_arena_size();
}

JNIEXPORT jint JNICALL Java_Digits_init(JNIEnv *env, jclass class, jobject arena)
{
    (void)class;
    jlong nbytes = (*env)->GetDirectBufferCapacity(env, arena);
    return digits_init((*env)->GetDirectBufferAddress(env, arena), nbytes < 0 ? 0 : (size_t)nbytes, digits_weights);
}

JNIEXPORT jint JNICALL Java_Digits_run(JNIEnv *env, jclass class, jobject arena, jobject image, jobject logits)
{
    (void)class;
    if ((*env)->GetDirectBufferCapacity(env, image) < (jlong)DIGITS_INPUT_image ||
        (*env)->GetDirectBufferCapacity(env, logits) < (jlong)DIGITS_OUTPUT_logits)
        return DIGITS_NULL;
    digits_inputs inputs = {(*env)->GetDirectBufferAddress(env, image)};
    digits_outputs outputs = {(*env)->GetDirectBufferAddress(env, logits)};
    return digits_run((*env)->GetDirectBufferAddress(env, arena), &inputs, &outputs, NULL);
}

JNIEXPORT jstring JNICALL Java_Digits_error(JNIEnv *env, jclass class, jint code)
{
    (void)class;
    return (*env)->NewStringUTF(env, digits_error(code));
}
