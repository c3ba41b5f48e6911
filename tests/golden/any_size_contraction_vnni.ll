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
  %s27 = alloca <16 x float>
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l18.end ]
  %v4 = and i64 %size0, 4294967295
  %v5 = and i64 %l2.i, 2147483647
  %v6 = mul i64 %v5, %v4
  %v7 = lshr i64 %v6, %size1
  %v8 = mul i64 %v7, %size2
  %v9 = sub i64 %l2.i, %v8
  %v10 = mul i64 %v9, 16
  %v11 = sub i64 %size3, %v10
  %v12 = call i64 @llvm.smin.i64(i64 %v11, i64 16)
  %v13 = getelementptr i16, ptr %p0, i64 0
  %v14 = mul i64 %v10, 64
  %v15 = getelementptr i8, ptr %v13, i64 %v14
  %v16 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v17 = call i64 @llvm.smin.i64(i64 %v16, i64 1)
  %v19 = icmp slt i64 0, %v17
  br i1 %v19, label %l18.body, label %l18.end
l18.body:
  %l18.i = phi i64 [ 0, %l2.body ], [ %l18.next, %l133.end ]
  %v20 = mul i64 %l18.i, 1024
  %v21 = getelementptr i8, ptr %p2, i64 %v20
  %v23 = icmp slt i64 0, %v12
  br i1 %v23, label %l22.body, label %l22.end
l22.body:
  %l22.i = phi i64 [ 0, %l18.body ], [ %l22.next, %l90.end ]
  %v24 = mul i64 %l22.i, 64
  %v25 = getelementptr i8, ptr %v15, i64 %v24
  %v26 = call ptr asm "", "=r,0"(ptr %v25)
  store <16 x float> splat (float 0x0000000000000000), ptr %s27
  %v29 = icmp slt i64 0, 1
  br i1 %v29, label %l28.body, label %l28.end
l28.body:
  %l28.i = phi i64 [ 0, %l22.body ], [ %l28.next, %l33.end ]
  %v30 = mul i64 %l28.i, 1024
  %v31 = getelementptr i8, ptr %v21, i64 %v30
  %v32 = getelementptr i8, ptr %v26, i64 0
  %v34 = icmp slt i64 0, 16
  br i1 %v34, label %l33.body, label %l33.end
l33.body:
  %l33.i = phi i64 [ 0, %l28.body ], [ %l33.next, %l33.body ]
  %v35 = mul i64 %l33.i, 64
  %v36 = getelementptr i8, ptr %v31, i64 %v35
  %v37 = load <16 x i32>, ptr %v36, align 4
  %v38 = mul i64 %l33.i, 4
  %v39 = getelementptr i8, ptr %v32, i64 %v38
  %v40 = load i32, ptr %v39, align 1
  %v41 = insertelement <16 x i32> poison, i32 %v40, i32 0
  %v42 = shufflevector <16 x i32> %v41, <16 x i32> poison, <16 x i32> zeroinitializer
  %v43 = load <16 x float>, ptr %s27
  %v44 = bitcast <16 x i32> %v42 to <32 x bfloat>
  %v45 = bitcast <16 x i32> %v37 to <32 x bfloat>
  %v46 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v43, <32 x bfloat> %v44, <32 x bfloat> %v45)
  store <16 x float> %v46, ptr %s27
  call void asm sideeffect "", "~{memory}"()
  %v47 = add i64 %l33.i, 1
  %v48 = mul i64 %v47, 64
  %v49 = getelementptr i8, ptr %v31, i64 %v48
  %v50 = load <16 x i32>, ptr %v49, align 4
  %v51 = mul i64 %v47, 4
  %v52 = getelementptr i8, ptr %v32, i64 %v51
  %v53 = load i32, ptr %v52, align 1
  %v54 = insertelement <16 x i32> poison, i32 %v53, i32 0
  %v55 = shufflevector <16 x i32> %v54, <16 x i32> poison, <16 x i32> zeroinitializer
  %v56 = load <16 x float>, ptr %s27
  %v57 = bitcast <16 x i32> %v55 to <32 x bfloat>
  %v58 = bitcast <16 x i32> %v50 to <32 x bfloat>
  %v59 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v56, <32 x bfloat> %v57, <32 x bfloat> %v58)
  store <16 x float> %v59, ptr %s27
  call void asm sideeffect "", "~{memory}"()
  %v60 = add i64 %l33.i, 2
  %v61 = mul i64 %v60, 64
  %v62 = getelementptr i8, ptr %v31, i64 %v61
  %v63 = load <16 x i32>, ptr %v62, align 4
  %v64 = mul i64 %v60, 4
  %v65 = getelementptr i8, ptr %v32, i64 %v64
  %v66 = load i32, ptr %v65, align 1
  %v67 = insertelement <16 x i32> poison, i32 %v66, i32 0
  %v68 = shufflevector <16 x i32> %v67, <16 x i32> poison, <16 x i32> zeroinitializer
  %v69 = load <16 x float>, ptr %s27
  %v70 = bitcast <16 x i32> %v68 to <32 x bfloat>
  %v71 = bitcast <16 x i32> %v63 to <32 x bfloat>
  %v72 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v69, <32 x bfloat> %v70, <32 x bfloat> %v71)
  store <16 x float> %v72, ptr %s27
  call void asm sideeffect "", "~{memory}"()
  %v73 = add i64 %l33.i, 3
  %v74 = mul i64 %v73, 64
  %v75 = getelementptr i8, ptr %v31, i64 %v74
  %v76 = load <16 x i32>, ptr %v75, align 4
  %v77 = mul i64 %v73, 4
  %v78 = getelementptr i8, ptr %v32, i64 %v77
  %v79 = load i32, ptr %v78, align 1
  %v80 = insertelement <16 x i32> poison, i32 %v79, i32 0
  %v81 = shufflevector <16 x i32> %v80, <16 x i32> poison, <16 x i32> zeroinitializer
  %v82 = load <16 x float>, ptr %s27
  %v83 = bitcast <16 x i32> %v81 to <32 x bfloat>
  %v84 = bitcast <16 x i32> %v76 to <32 x bfloat>
  %v85 = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %v82, <32 x bfloat> %v83, <32 x bfloat> %v84)
  store <16 x float> %v85, ptr %s27
  %l33.next = add nuw nsw i64 %l33.i, 4
  %v86 = icmp slt i64 %l33.next, 16
  br i1 %v86, label %l33.body, label %l33.end
l33.end:
  %l28.next = add nuw nsw i64 %l28.i, 1
  %v87 = icmp slt i64 %l28.next, 1
  br i1 %v87, label %l28.body, label %l28.end
l28.end:
  %v88 = load <16 x float>, ptr %s27
  %v89 = getelementptr i32, ptr %s1, i64 0
  store <16 x float> %v88, ptr %v89, align 64
  %v91 = icmp slt i64 0, 1
  br i1 %v91, label %l90.body, label %l90.end
l90.body:
  %l90.i = phi i64 [ 0, %l28.end ], [ %l90.next, %l90.body ]
  %v92 = add i64 %l22.i, %l90.i
  %v93 = add i64 %v10, %v92
  %v94 = mul i64 %l90.i, 16
  %v95 = getelementptr i32, ptr %s1, i64 %v94
  %v96 = getelementptr i32, ptr %v95, i64 0
  %v97 = load <16 x float>, ptr %v96, align 64
  %v98 = mul i64 %v93, 16
  %v99 = getelementptr i16, ptr %p1, i64 0
  %v100 = load <16 x i16>, ptr %v99, align 2
  %v101 = zext <16 x i16> %v100 to <16 x i32>
  %v102 = shl <16 x i32> %v101, splat (i32 16)
  %v103 = bitcast <16 x i32> %v102 to <16 x float>
  %v104 = fadd contract <16 x float> %v97, %v103
  %v105 = fptrunc <16 x float> %v104 to <16 x bfloat>
  %v106 = bitcast <16 x bfloat> %v105 to <16 x i16>
  %v107 = zext <16 x i16> %v106 to <16 x i32>
  %v108 = shl <16 x i32> %v107, splat (i32 16)
  %v109 = bitcast <16 x i32> %v108 to <16 x float>
  %v110 = fcmp olt <16 x float> %v109, splat (float 0x0000000000000000)
  %v111 = select <16 x i1> %v110, <16 x float> splat (float 0x0000000000000000), <16 x float> %v109
  %v112 = fadd contract <16 x float> %v111, %v111
  %v113 = fptrunc <16 x float> %v112 to <16 x bfloat>
  %v114 = bitcast <16 x bfloat> %v113 to <16 x i16>
  %v115 = zext <16 x i16> %v114 to <16 x i32>
  %v116 = shl <16 x i32> %v115, splat (i32 16)
  %v117 = bitcast <16 x i32> %v116 to <16 x float>
  %v118 = bitcast <16 x float> %v111 to <16 x i32>
  %v119 = lshr <16 x i32> %v118, splat (i32 16)
  %v120 = trunc <16 x i32> %v119 to <16 x i16>
  %v121 = getelementptr i16, ptr %p3, i64 %v98
  store <16 x i16> %v120, ptr %v121, align 2
  %v122 = bitcast <16 x float> %v117 to <16 x i32>
  %v123 = lshr <16 x i32> %v122, splat (i32 16)
  %v124 = trunc <16 x i32> %v123 to <16 x i16>
  %v125 = getelementptr i16, ptr %p4, i64 %v98
  store <16 x i16> %v124, ptr %v125, align 2
  %l90.next = add nuw nsw i64 %l90.i, 1
  %v126 = icmp slt i64 %l90.next, 1
  br i1 %v126, label %l90.body, label %l90.end
l90.end:
  %l22.next = add nuw nsw i64 %l22.i, 1
  %v127 = icmp slt i64 %l22.next, %v12
  br i1 %v127, label %l22.body, label %l22.end
l22.end:
  %v128 = mul i64 %v12, 64
  %v129 = getelementptr i8, ptr %v15, i64 %v128
  %v130 = call ptr asm "", "=r,0"(ptr %v129)
  %v131 = sub i64 %v12, %v12
  br label %rest132
rest132:
  %v134 = icmp slt i64 0, %v131
  br i1 %v134, label %l133.body, label %l133.end
l133.body:
  %l133.i = phi i64 [ 0, %rest132 ], [ %l133.next, %l133.body ]
  %v135 = add i64 %v12, %l133.i
  %v136 = add i64 %v10, %v135
  %v137 = mul i64 %l133.i, 16
  %v138 = getelementptr i32, ptr %s1, i64 %v137
  %v139 = getelementptr i32, ptr %v138, i64 0
  %v140 = load <16 x float>, ptr %v139, align 64
  %v141 = mul i64 %v136, 16
  %v142 = getelementptr i16, ptr %p1, i64 0
  %v143 = load <16 x i16>, ptr %v142, align 2
  %v144 = zext <16 x i16> %v143 to <16 x i32>
  %v145 = shl <16 x i32> %v144, splat (i32 16)
  %v146 = bitcast <16 x i32> %v145 to <16 x float>
  %v147 = fadd contract <16 x float> %v140, %v146
  %v148 = fptrunc <16 x float> %v147 to <16 x bfloat>
  %v149 = bitcast <16 x bfloat> %v148 to <16 x i16>
  %v150 = zext <16 x i16> %v149 to <16 x i32>
  %v151 = shl <16 x i32> %v150, splat (i32 16)
  %v152 = bitcast <16 x i32> %v151 to <16 x float>
  %v153 = fcmp olt <16 x float> %v152, splat (float 0x0000000000000000)
  %v154 = select <16 x i1> %v153, <16 x float> splat (float 0x0000000000000000), <16 x float> %v152
  %v155 = fadd contract <16 x float> %v154, %v154
  %v156 = fptrunc <16 x float> %v155 to <16 x bfloat>
  %v157 = bitcast <16 x bfloat> %v156 to <16 x i16>
  %v158 = zext <16 x i16> %v157 to <16 x i32>
  %v159 = shl <16 x i32> %v158, splat (i32 16)
  %v160 = bitcast <16 x i32> %v159 to <16 x float>
  %v161 = bitcast <16 x float> %v154 to <16 x i32>
  %v162 = lshr <16 x i32> %v161, splat (i32 16)
  %v163 = trunc <16 x i32> %v162 to <16 x i16>
  %v164 = getelementptr i16, ptr %p3, i64 %v141
  store <16 x i16> %v163, ptr %v164, align 2
  %v165 = bitcast <16 x float> %v160 to <16 x i32>
  %v166 = lshr <16 x i32> %v165, splat (i32 16)
  %v167 = trunc <16 x i32> %v166 to <16 x i16>
  %v168 = getelementptr i16, ptr %p4, i64 %v141
  store <16 x i16> %v167, ptr %v168, align 2
  %l133.next = add nuw nsw i64 %l133.i, 1
  %v169 = icmp slt i64 %l133.next, %v131
  br i1 %v169, label %l133.body, label %l133.end
l133.end:
  %l18.next = add nuw nsw i64 %l18.i, 1
  %v170 = icmp slt i64 %l18.next, %v17
  br i1 %v170, label %l18.body, label %l18.end
l18.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v171 = icmp slt i64 %l2.next, %last
  br i1 %v171, label %l2.body, label %l2.end
l2.end:
  ret void
}
