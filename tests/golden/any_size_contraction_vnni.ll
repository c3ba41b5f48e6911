; matmul nx16x32
; problem   batch=1 m=150 n=16 k=32 run=32 outer=1 nbytes=2 straight=1 b_constant=1 b_batched=0 b_along_k=0 window=1 images=1 out_y=1 out_x=150 taps_y=1 taps_x=1 stride_y=1 stride_x=1 channels=32 planes=0 signed=0  (an example: each run decides its sizes)
; schedule  panels=1 pack_a=0 tiles_n=1 tile_m=16 pack_b=2 across=0 ahead=0 rows=1
; engine    contraction/vnni

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %p4, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [16 x i32], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %s20 = alloca <16 x float>
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l111.end ]
  %v4 = and i64 %size0, 4294967295
  %v5 = and i64 %l3.i, 2147483647
  %v6 = mul i64 %v5, %v4
  %v7 = lshr i64 %v6, %size1
  %v8 = mul i64 %v7, %size2
  %v9 = sub i64 %l3.i, %v8
  %v10 = mul i64 %v9, 16
  %v11 = sub i64 %size3, %v10
  %v12 = call i64 @llvm.smin.i64(i64 %v11, i64 16)
  %v13 = mul i64 %v10, 64
  %v14 = getelementptr i8, ptr %p0, i64 %v13
  %v15 = icmp slt i64 0, %v12
  br i1 %v15, label %l16.body, label %l16.end
l16.body:
  %l16.i = phi i64 [ 0, %l3.body ], [ %l16.next, %l21.end ]
  %v17 = mul i64 %l16.i, 64
  %v18 = getelementptr i8, ptr %v14, i64 %v17
  %v19 = call ptr asm "", "=r,0"(ptr %v18)
  store <16 x float> splat (float 0x0000000000000000), ptr %s20
  br i1 true, label %l21.body, label %l21.end
l21.body:
  %l21.i = phi i64 [ 0, %l16.body ], [ %l21.next, %l21.body ]
  %v22 = mul i64 %l21.i, 64
  %v23 = getelementptr i8, ptr %p2, i64 %v22
  %v24 = load <16 x i32>, ptr %v23, align 4
  %v25 = mul i64 %l21.i, 4
  %v26 = getelementptr i8, ptr %v19, i64 %v25
  %v27 = load i32, ptr %v26, align 1
  %v28 = insertelement <16 x i32> poison, i32 %v27, i32 0
  %v29 = shufflevector <16 x i32> %v28, <16 x i32> poison, <16 x i32> zeroinitializer
  %v30 = load <16 x float>, ptr %s20
  %v31 = bitcast <16 x i32> %v29 to <32 x bfloat>
  %v32 = bitcast <16 x i32> %v24 to <32 x bfloat>
  %v33 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v30, <32 x bfloat> %v31, <32 x bfloat> %v32)
  store <16 x float> %v33, ptr %s20
  call void asm sideeffect "", "~{memory}"()
  %v34 = add i64 %l21.i, 1
  %v35 = mul i64 %v34, 64
  %v36 = getelementptr i8, ptr %p2, i64 %v35
  %v37 = load <16 x i32>, ptr %v36, align 4
  %v38 = mul i64 %v34, 4
  %v39 = getelementptr i8, ptr %v19, i64 %v38
  %v40 = load i32, ptr %v39, align 1
  %v41 = insertelement <16 x i32> poison, i32 %v40, i32 0
  %v42 = shufflevector <16 x i32> %v41, <16 x i32> poison, <16 x i32> zeroinitializer
  %v43 = load <16 x float>, ptr %s20
  %v44 = bitcast <16 x i32> %v42 to <32 x bfloat>
  %v45 = bitcast <16 x i32> %v37 to <32 x bfloat>
  %v46 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v43, <32 x bfloat> %v44, <32 x bfloat> %v45)
  store <16 x float> %v46, ptr %s20
  call void asm sideeffect "", "~{memory}"()
  %v47 = add i64 %l21.i, 2
  %v48 = mul i64 %v47, 64
  %v49 = getelementptr i8, ptr %p2, i64 %v48
  %v50 = load <16 x i32>, ptr %v49, align 4
  %v51 = mul i64 %v47, 4
  %v52 = getelementptr i8, ptr %v19, i64 %v51
  %v53 = load i32, ptr %v52, align 1
  %v54 = insertelement <16 x i32> poison, i32 %v53, i32 0
  %v55 = shufflevector <16 x i32> %v54, <16 x i32> poison, <16 x i32> zeroinitializer
  %v56 = load <16 x float>, ptr %s20
  %v57 = bitcast <16 x i32> %v55 to <32 x bfloat>
  %v58 = bitcast <16 x i32> %v50 to <32 x bfloat>
  %v59 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v56, <32 x bfloat> %v57, <32 x bfloat> %v58)
  store <16 x float> %v59, ptr %s20
  call void asm sideeffect "", "~{memory}"()
  %v60 = add i64 %l21.i, 3
  %v61 = mul i64 %v60, 64
  %v62 = getelementptr i8, ptr %p2, i64 %v61
  %v63 = load <16 x i32>, ptr %v62, align 4
  %v64 = mul i64 %v60, 4
  %v65 = getelementptr i8, ptr %v19, i64 %v64
  %v66 = load i32, ptr %v65, align 1
  %v67 = insertelement <16 x i32> poison, i32 %v66, i32 0
  %v68 = shufflevector <16 x i32> %v67, <16 x i32> poison, <16 x i32> zeroinitializer
  %v69 = load <16 x float>, ptr %s20
  %v70 = bitcast <16 x i32> %v68 to <32 x bfloat>
  %v71 = bitcast <16 x i32> %v63 to <32 x bfloat>
  %v72 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v69, <32 x bfloat> %v70, <32 x bfloat> %v71)
  store <16 x float> %v72, ptr %s20
  %l21.next = add nuw nsw i64 %l21.i, 4
  %v73 = icmp slt i64 %l21.next, 16
  br i1 %v73, label %l21.body, label %l21.end
l21.end:
  %v74 = load <16 x float>, ptr %s20
  store <16 x float> %v74, ptr %s1, align 64
  %v75 = add i64 %v10, %l16.i
  %v76 = load <16 x float>, ptr %s1, align 64
  %v77 = mul i64 %v75, 16
  %v78 = load <16 x i16>, ptr %p1, align 2
  %v79 = zext <16 x i16> %v78 to <16 x i32>
  %v80 = shl <16 x i32> %v79, splat (i32 16)
  %v81 = bitcast <16 x i32> %v80 to <16 x float>
  %v82 = fadd contract <16 x float> %v76, %v81
  %v83 = fptrunc <16 x float> %v82 to <16 x bfloat>
  %v84 = bitcast <16 x bfloat> %v83 to <16 x i16>
  %v85 = zext <16 x i16> %v84 to <16 x i32>
  %v86 = shl <16 x i32> %v85, splat (i32 16)
  %v87 = bitcast <16 x i32> %v86 to <16 x float>
  %v88 = fcmp olt <16 x float> %v87, splat (float 0x0000000000000000)
  %v89 = select <16 x i1> %v88, <16 x float> splat (float 0x0000000000000000), <16 x float> %v87
  %v90 = fadd contract <16 x float> %v89, %v89
  %v91 = fptrunc <16 x float> %v90 to <16 x bfloat>
  %v92 = bitcast <16 x bfloat> %v91 to <16 x i16>
  %v93 = zext <16 x i16> %v92 to <16 x i32>
  %v94 = shl <16 x i32> %v93, splat (i32 16)
  %v95 = bitcast <16 x i32> %v94 to <16 x float>
  %v96 = bitcast <16 x float> %v89 to <16 x i32>
  %v97 = lshr <16 x i32> %v96, splat (i32 16)
  %v98 = trunc <16 x i32> %v97 to <16 x i16>
  %v99 = getelementptr i16, ptr %p3, i64 %v77
  store <16 x i16> %v98, ptr %v99, align 2
  %v100 = bitcast <16 x float> %v95 to <16 x i32>
  %v101 = lshr <16 x i32> %v100, splat (i32 16)
  %v102 = trunc <16 x i32> %v101 to <16 x i16>
  %v103 = getelementptr i16, ptr %p4, i64 %v77
  store <16 x i16> %v102, ptr %v103, align 2
  %l16.next = add nuw nsw i64 %l16.i, 1
  %v104 = icmp slt i64 %l16.next, %v12
  br i1 %v104, label %l16.body, label %l16.end
l16.end:
  %v105 = mul i64 %v12, 64
  %v106 = getelementptr i8, ptr %v14, i64 %v105
  %v107 = call ptr asm "", "=r,0"(ptr %v106)
  %v108 = sub i64 %v12, %v12
  br label %rest109
rest109:
  %v110 = icmp slt i64 0, %v108
  br i1 %v110, label %l111.body, label %l111.end
l111.body:
  %l111.i = phi i64 [ 0, %rest109 ], [ %l111.next, %l111.body ]
  %v112 = add i64 %v12, %l111.i
  %v113 = add i64 %v10, %v112
  %v114 = mul i64 %l111.i, 16
  %v115 = getelementptr i32, ptr %s1, i64 %v114
  %v116 = load <16 x float>, ptr %v115, align 64
  %v117 = mul i64 %v113, 16
  %v118 = load <16 x i16>, ptr %p1, align 2
  %v119 = zext <16 x i16> %v118 to <16 x i32>
  %v120 = shl <16 x i32> %v119, splat (i32 16)
  %v121 = bitcast <16 x i32> %v120 to <16 x float>
  %v122 = fadd contract <16 x float> %v116, %v121
  %v123 = fptrunc <16 x float> %v122 to <16 x bfloat>
  %v124 = bitcast <16 x bfloat> %v123 to <16 x i16>
  %v125 = zext <16 x i16> %v124 to <16 x i32>
  %v126 = shl <16 x i32> %v125, splat (i32 16)
  %v127 = bitcast <16 x i32> %v126 to <16 x float>
  %v128 = fcmp olt <16 x float> %v127, splat (float 0x0000000000000000)
  %v129 = select <16 x i1> %v128, <16 x float> splat (float 0x0000000000000000), <16 x float> %v127
  %v130 = fadd contract <16 x float> %v129, %v129
  %v131 = fptrunc <16 x float> %v130 to <16 x bfloat>
  %v132 = bitcast <16 x bfloat> %v131 to <16 x i16>
  %v133 = zext <16 x i16> %v132 to <16 x i32>
  %v134 = shl <16 x i32> %v133, splat (i32 16)
  %v135 = bitcast <16 x i32> %v134 to <16 x float>
  %v136 = bitcast <16 x float> %v129 to <16 x i32>
  %v137 = lshr <16 x i32> %v136, splat (i32 16)
  %v138 = trunc <16 x i32> %v137 to <16 x i16>
  %v139 = getelementptr i16, ptr %p3, i64 %v117
  store <16 x i16> %v138, ptr %v139, align 2
  %v140 = bitcast <16 x float> %v135 to <16 x i32>
  %v141 = lshr <16 x i32> %v140, splat (i32 16)
  %v142 = trunc <16 x i32> %v141 to <16 x i16>
  %v143 = getelementptr i16, ptr %p4, i64 %v117
  store <16 x i16> %v142, ptr %v143, align 2
  %l111.next = add nuw nsw i64 %l111.i, 1
  %v144 = icmp slt i64 %l111.next, %v108
  br i1 %v144, label %l111.body, label %l111.end
l111.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v145 = icmp slt i64 %l3.next, %last
  br i1 %v145, label %l3.body, label %l3.end
l3.end:
  ret void
}
