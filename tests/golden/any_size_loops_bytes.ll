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
  %v4 = icmp slt i64 %first, %last
  br i1 %v4, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l45.end ]
  %v5 = urem i64 %l3.i, 3
  %v6 = udiv i64 %l3.i, 3
  %v7 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v8 = icmp eq i64 0, 0
  %v10 = icmp slt i64 0, %v7
  br i1 %v10, label %l9.body, label %l9.end
l9.body:
  %l9.i = phi i64 [ 0, %l3.body ], [ %l9.next, %l9.body ]
  %v11 = mul i64 %l9.i, 8
  %v12 = getelementptr i8, ptr %p1, i64 %v11
  %v13 = load <8 x i8>, ptr %v12, align 1
  %v14 = sext <8 x i8> %v13 to <8 x i32>
  %v15 = add <8 x i32> splat (i32 0), %v14
  %v16 = and <8 x i32> %v14, splat (i32 65535)
  %v17 = shl <8 x i32> %v16, splat (i32 0)
  %v18 = mul i64 %l9.i, 96
  %v19 = getelementptr i8, ptr %s1, i64 %v18
  store <8 x i32> %v17, ptr %v19, align 4
  %v20 = add i64 8, %v11
  %v21 = getelementptr i8, ptr %p1, i64 %v20
  %v22 = load <8 x i8>, ptr %v21, align 1
  %v23 = sext <8 x i8> %v22 to <8 x i32>
  %v24 = add <8 x i32> %v15, %v23
  %v25 = and <8 x i32> %v23, splat (i32 65535)
  %v26 = shl <8 x i32> %v25, splat (i32 0)
  %v27 = mul i64 %l9.i, 96
  %v28 = add i64 %v27, 32
  %v29 = getelementptr i8, ptr %s1, i64 %v28
  store <8 x i32> %v26, ptr %v29, align 4
  %v30 = add i64 16, %v11
  %v31 = getelementptr i8, ptr %p1, i64 %v30
  %v32 = load <8 x i8>, ptr %v31, align 1
  %v33 = sext <8 x i8> %v32 to <8 x i32>
  %v34 = add <8 x i32> %v24, %v33
  %v35 = and <8 x i32> %v33, splat (i32 65535)
  %v36 = shl <8 x i32> %v35, splat (i32 0)
  %v37 = mul i64 %l9.i, 96
  %v38 = add i64 %v37, 64
  %v39 = getelementptr i8, ptr %s1, i64 %v38
  store <8 x i32> %v36, ptr %v39, align 4
  %v40 = mul i64 %l9.i, 8
  %v41 = getelementptr i32, ptr %s2, i64 %v40
  %v42 = mul <8 x i32> %v34, splat (i32 0)
  store <8 x i32> %v42, ptr %v41, align 4
  %l9.next = add nuw nsw i64 %l9.i, 1
  %v43 = icmp slt i64 %l9.next, %v7
  br i1 %v43, label %l9.body, label %l9.end
l9.end:
  %v44 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v46 = icmp slt i64 0, %v44
  br i1 %v46, label %l45.body, label %l45.end
l45.body:
  %l45.i = phi i64 [ 0, %l9.end ], [ %l45.next, %l51.end ]
  %v47 = mul i64 %v6, 72
  %v48 = mul i64 %v5, 8
  %v49 = add i64 %v47, %v48
  %v50 = getelementptr i8, ptr %p0, i64 %v49
  %v52 = icmp slt i64 0, 1
  br i1 %v52, label %l51.body, label %l51.end
l51.body:
  %l51.i = phi i64 [ 0, %l45.body ], [ %l51.next, %l53.end ]
  %v54 = icmp slt i64 0, %v7
  br i1 %v54, label %l53.body, label %l53.end
l53.body:
  %l53.i = phi i64 [ 0, %l51.body ], [ %l53.next, %l53.body ]
  %v55 = mul i64 %l53.i, 8
  %v56 = mul i64 %l53.i, 8
  %v57 = getelementptr i32, ptr %s2, i64 %v56
  %v58 = load <8 x i32>, ptr %v57, align 4
  %v59 = mul i64 %l51.i, 24
  %v60 = add i64 %v59, %v55
  %v61 = getelementptr i8, ptr %v50, i64 %v60
  %v62 = load <8 x i8>, ptr %v61, align 1
  %v63 = zext <8 x i8> %v62 to <8 x i32>
  %v64 = mul i64 %l53.i, 96
  %v65 = getelementptr i8, ptr %s1, i64 %v64
  %v66 = load <8 x i32>, ptr %v65, align 4
  %v67 = bitcast <8 x i32> %v63 to <16 x i16>
  %v68 = bitcast <8 x i32> %v66 to <16 x i16>
  %v69 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v67, <16 x i16> %v68)
  %v70 = add <8 x i32> %v58, %v69
  %v71 = getelementptr i8, ptr %v61, i64 24
  %v72 = load <8 x i8>, ptr %v71, align 1
  %v73 = zext <8 x i8> %v72 to <8 x i32>
  %v74 = mul i64 %l53.i, 96
  %v75 = add i64 %v74, 32
  %v76 = getelementptr i8, ptr %s1, i64 %v75
  %v77 = load <8 x i32>, ptr %v76, align 4
  %v78 = bitcast <8 x i32> %v73 to <16 x i16>
  %v79 = bitcast <8 x i32> %v77 to <16 x i16>
  %v80 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v78, <16 x i16> %v79)
  %v81 = add <8 x i32> %v70, %v80
  %v82 = getelementptr i8, ptr %v61, i64 48
  %v83 = load <8 x i8>, ptr %v82, align 1
  %v84 = zext <8 x i8> %v83 to <8 x i32>
  %v85 = mul i64 %l53.i, 96
  %v86 = add i64 %v85, 64
  %v87 = getelementptr i8, ptr %s1, i64 %v86
  %v88 = load <8 x i32>, ptr %v87, align 4
  %v89 = bitcast <8 x i32> %v84 to <16 x i16>
  %v90 = bitcast <8 x i32> %v88 to <16 x i16>
  %v91 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v89, <16 x i16> %v90)
  %v92 = add <8 x i32> %v81, %v91
  %v93 = mul i64 %v6, 24
  %v94 = mul i64 %v5, 8
  %v95 = add i64 %v93, %v94
  %v96 = add i64 %v95, %v55
  %v97 = getelementptr i32, ptr %p2, i64 %v55
  %v98 = load <8 x i32>, ptr %v97, align 4
  %v99 = add <8 x i32> %v92, %v98
  %v100 = sitofp <8 x i32> %v99 to <8 x float>
  %v101 = getelementptr float, ptr %p3, i64 %v55
  %v102 = load <8 x float>, ptr %v101, align 4
  %v103 = fmul contract <8 x float> %v100, %v102
  %v104 = call <8 x float> @llvm.rint.v8f32(<8 x float> %v103)
  %v105 = fcmp olt <8 x float> %v104, splat (float 0x0000000000000000)
  %v106 = select <8 x i1> %v105, <8 x float> splat (float 0x0000000000000000), <8 x float> %v104
  %v107 = fcmp ogt <8 x float> %v106, splat (float 0x406FE00000000000)
  %v108 = select <8 x i1> %v107, <8 x float> splat (float 0x406FE00000000000), <8 x float> %v106
  %v109 = fcmp ogt <8 x float> %v103, splat (float 0x0000000000000000)
  %v110 = select <8 x i1> %v109, <8 x float> %v103, <8 x float> splat (float 0x0000000000000000)
  %v111 = fcmp olt <8 x float> %v110, splat (float 0x406FE00000000000)
  %v112 = select <8 x i1> %v111, <8 x float> %v110, <8 x float> splat (float 0x406FE00000000000)
  %v113 = call <8 x i32> @llvm.lrint.v8i32.v8f32(<8 x float> %v112)
  %v114 = trunc <8 x i32> %v113 to <8 x i8>
  %v115 = getelementptr i8, ptr %p4, i64 %v96
  store <8 x i8> %v114, ptr %v115, align 1
  %v116 = getelementptr i32, ptr %p5, i64 %v96
  store <8 x i32> %v92, ptr %v116, align 4
  %l53.next = add nuw nsw i64 %l53.i, 1
  %v117 = icmp slt i64 %l53.next, %v7
  br i1 %v117, label %l53.body, label %l53.end
l53.end:
  %l51.next = add nuw nsw i64 %l51.i, 1
  %v118 = icmp slt i64 %l51.next, 1
  br i1 %v118, label %l51.body, label %l51.end
l51.end:
  %l45.next = add nuw nsw i64 %l45.i, 1
  %v119 = icmp slt i64 %l45.next, %v44
  br i1 %v119, label %l45.body, label %l45.end
l45.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v120 = icmp slt i64 %l3.next, %last
  br i1 %v120, label %l3.body, label %l3.end
l3.end:
  ret void
}
