; u8 i8 (n, 3, 3, 8) (3, 1) stride (1, 1) pad (0, 0, 0, 0)
; problem   lead=450 out_y=1 out_x=1 channels=8 taps_y=1 taps_x=3 stride_x=1 dilation_x=1 low_x=0 high_x=3 weighted=1  (an example: each run decides its sizes)
; schedule  lanes=8 tile_x=1 vectors=1 tasks=64
; engine    loops/bytes

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %p5, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [96 x i8], align 64
  %s2 = alloca [8 x i32], align 64
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l4.body, label %l4.end
l4.body:
  %l4.i = phi i64 [ %first, %entry ], [ %l4.next, %l4.body ]
  %v5 = urem i64 %l4.i, 3
  %v6 = udiv i64 %l4.i, 3
  %v7 = icmp eq i64 0, 0
  %v8 = load <8 x i8>, ptr %p1, align 1
  %v9 = sext <8 x i8> %v8 to <8 x i32>
  %v10 = add <8 x i32> splat (i32 0), %v9
  %v11 = and <8 x i32> %v9, splat (i32 65535)
  %v12 = shl <8 x i32> %v11, splat (i32 0)
  store <8 x i32> %v12, ptr %s1, align 4
  %v13 = getelementptr i8, ptr %p1, i64 8
  %v14 = load <8 x i8>, ptr %v13, align 1
  %v15 = sext <8 x i8> %v14 to <8 x i32>
  %v16 = add <8 x i32> %v10, %v15
  %v17 = and <8 x i32> %v15, splat (i32 65535)
  %v18 = shl <8 x i32> %v17, splat (i32 0)
  %v19 = getelementptr i8, ptr %s1, i64 32
  store <8 x i32> %v18, ptr %v19, align 4
  %v20 = getelementptr i8, ptr %p1, i64 16
  %v21 = load <8 x i8>, ptr %v20, align 1
  %v22 = sext <8 x i8> %v21 to <8 x i32>
  %v23 = add <8 x i32> %v16, %v22
  %v24 = and <8 x i32> %v22, splat (i32 65535)
  %v25 = shl <8 x i32> %v24, splat (i32 0)
  %v26 = getelementptr i8, ptr %s1, i64 64
  store <8 x i32> %v25, ptr %v26, align 4
  %v27 = mul <8 x i32> %v23, splat (i32 0)
  store <8 x i32> %v27, ptr %s2, align 4
  %v28 = mul i64 %v6, 72
  %v29 = mul i64 %v5, 8
  %v30 = add i64 %v28, %v29
  %v31 = getelementptr i8, ptr %p0, i64 %v30
  %v32 = load <8 x i32>, ptr %s2, align 4
  %v33 = load <8 x i8>, ptr %v31, align 1
  %v34 = zext <8 x i8> %v33 to <8 x i32>
  %v35 = load <8 x i32>, ptr %s1, align 4
  %v36 = bitcast <8 x i32> %v34 to <16 x i16>
  %v37 = bitcast <8 x i32> %v35 to <16 x i16>
  %v38 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v36, <16 x i16> %v37)
  %v39 = add <8 x i32> %v32, %v38
  %v40 = getelementptr i8, ptr %v31, i64 24
  %v41 = load <8 x i8>, ptr %v40, align 1
  %v42 = zext <8 x i8> %v41 to <8 x i32>
  %v43 = load <8 x i32>, ptr %v19, align 4
  %v44 = bitcast <8 x i32> %v42 to <16 x i16>
  %v45 = bitcast <8 x i32> %v43 to <16 x i16>
  %v46 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v44, <16 x i16> %v45)
  %v47 = add <8 x i32> %v39, %v46
  %v48 = getelementptr i8, ptr %v31, i64 48
  %v49 = load <8 x i8>, ptr %v48, align 1
  %v50 = zext <8 x i8> %v49 to <8 x i32>
  %v51 = load <8 x i32>, ptr %v26, align 4
  %v52 = bitcast <8 x i32> %v50 to <16 x i16>
  %v53 = bitcast <8 x i32> %v51 to <16 x i16>
  %v54 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v52, <16 x i16> %v53)
  %v55 = add <8 x i32> %v47, %v54
  %v56 = mul i64 %v6, 24
  %v57 = add i64 %v56, %v29
  %v58 = load <8 x i32>, ptr %p2, align 4
  %v59 = add <8 x i32> %v55, %v58
  %v60 = sitofp <8 x i32> %v59 to <8 x float>
  %v61 = load <8 x float>, ptr %p3, align 4
  %v62 = fmul contract <8 x float> %v60, %v61
  %v63 = call <8 x float> @llvm.rint.v8f32(<8 x float> %v62)
  %v64 = fcmp olt <8 x float> %v63, splat (float 0x0000000000000000)
  %v65 = select <8 x i1> %v64, <8 x float> splat (float 0x0000000000000000), <8 x float> %v63
  %v66 = fcmp ogt <8 x float> %v65, splat (float 0x406FE00000000000)
  %v67 = select <8 x i1> %v66, <8 x float> splat (float 0x406FE00000000000), <8 x float> %v65
  %v68 = fcmp ogt <8 x float> %v62, splat (float 0x0000000000000000)
  %v69 = select <8 x i1> %v68, <8 x float> %v62, <8 x float> splat (float 0x0000000000000000)
  %v70 = fcmp olt <8 x float> %v69, splat (float 0x406FE00000000000)
  %v71 = select <8 x i1> %v70, <8 x float> %v69, <8 x float> splat (float 0x406FE00000000000)
  %v72 = call <8 x i32> @llvm.lrint.v8i32.v8f32(<8 x float> %v71)
  %v73 = trunc <8 x i32> %v72 to <8 x i8>
  %v74 = getelementptr i8, ptr %p4, i64 %v57
  store <8 x i8> %v73, ptr %v74, align 1
  %v75 = getelementptr i32, ptr %p5, i64 %v57
  store <8 x i32> %v55, ptr %v75, align 4
  %l4.next = add nuw nsw i64 %l4.i, 1
  %v76 = icmp slt i64 %l4.next, %last
  br i1 %v76, label %l4.body, label %l4.end
l4.end:
  ret void
}
