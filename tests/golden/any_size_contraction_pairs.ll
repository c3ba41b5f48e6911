; matmul nx8x16
; problem   batch=1 m=150 n=8 k=16 run=16 outer=1 nbytes=2 straight=0 b_constant=1 b_batched=0 b_along_k=0 window=1 images=1 out_y=1 out_x=150 taps_y=1 taps_x=1 stride_y=1 stride_x=1 channels=16 planes=0 signed=1 pairs=1  (an example: each run decides its sizes)
; schedule  panels=1 pack_a=1 tiles_n=1 tile_m=16 pack_b=2 across=0 ahead=0 rows=1
; engine    contraction/pairs

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
  %s1 = alloca [1280 x i8], align 64
  %s2 = alloca [16 x i32], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %s28 = alloca <8 x i32>
  %s29 = alloca <8 x i32>
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l4.body, label %l4.end
l4.body:
  %l4.i = phi i64 [ %first, %entry ], [ %l4.next, %l148.end ]
  %v5 = and i64 %size0, 4294967295
  %v6 = and i64 %l4.i, 2147483647
  %v7 = mul i64 %v6, %v5
  %v8 = lshr i64 %v7, %size1
  %v9 = mul i64 %v8, %size2
  %v10 = sub i64 %l4.i, %v9
  %v11 = mul i64 %v10, 16
  %v12 = sub i64 %size3, %v11
  %v13 = call i64 @llvm.smin.i64(i64 %v12, i64 16)
  %v14 = icmp slt i64 0, %v13
  br i1 %v14, label %l15.body, label %l15.end
l15.body:
  %l15.i = phi i64 [ 0, %l4.body ], [ %l15.next, %l15.body ]
  %v16 = add i64 %v11, %l15.i
  %v17 = mul i64 %l15.i, 64
  %v18 = getelementptr i8, ptr %s1, i64 %v17
  %v19 = mul i64 %v16, 16
  %v20 = getelementptr i8, ptr %p0, i64 %v19
  %v21 = load <16 x i8>, ptr %v20, align 1
  %v22 = sext <16 x i8> %v21 to <16 x i16>
  store <16 x i16> %v22, ptr %v18, align 2
  %l15.next = add nuw nsw i64 %l15.i, 1
  %v23 = icmp slt i64 %l15.next, %v13
  br i1 %v23, label %l15.body, label %l15.end
l15.end:
  br i1 %v14, label %l24.body, label %l24.end
l24.body:
  %l24.i = phi i64 [ 0, %l15.end ], [ %l24.next, %l30.end ]
  %v25 = mul i64 %l24.i, 64
  %v26 = getelementptr i8, ptr %s1, i64 %v25
  %v27 = call ptr asm "", "=r,0"(ptr %v26)
  store <8 x i32> splat (i32 0), ptr %s28
  store <8 x i32> splat (i32 0), ptr %s29
  br i1 true, label %l30.body, label %l30.end
l30.body:
  %l30.i = phi i64 [ 0, %l24.body ], [ %l30.next, %l30.body ]
  %v31 = mul i64 %l30.i, 32
  %v32 = getelementptr i8, ptr %p2, i64 %v31
  %v33 = load <16 x i8>, ptr %v32, align 4
  %v34 = sext <16 x i8> %v33 to <16 x i16>
  %v35 = add i64 %v31, 16
  %v36 = getelementptr i8, ptr %p2, i64 %v35
  %v37 = load <16 x i8>, ptr %v36, align 4
  %v38 = sext <16 x i8> %v37 to <16 x i16>
  %v39 = mul i64 %l30.i, 4
  %v40 = getelementptr i8, ptr %v27, i64 %v39
  %v41 = load i32, ptr %v40, align 1
  %v42 = insertelement <8 x i32> poison, i32 %v41, i32 0
  %v43 = shufflevector <8 x i32> %v42, <8 x i32> poison, <8 x i32> zeroinitializer
  %v44 = bitcast <8 x i32> %v43 to <16 x i16>
  %v45 = load <8 x i32>, ptr %s28
  %v46 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v44, <16 x i16> %v34)
  %v47 = add <8 x i32> %v45, %v46
  %v48 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v47)
  store <8 x i32> %v48, ptr %s28
  %v49 = load <8 x i32>, ptr %s29
  %v50 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v44, <16 x i16> %v38)
  %v51 = add <8 x i32> %v49, %v50
  %v52 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v51)
  store <8 x i32> %v52, ptr %s29
  call void asm sideeffect "", "~{memory}"()
  %v53 = add i64 %l30.i, 1
  %v54 = mul i64 %v53, 32
  %v55 = getelementptr i8, ptr %p2, i64 %v54
  %v56 = load <16 x i8>, ptr %v55, align 4
  %v57 = sext <16 x i8> %v56 to <16 x i16>
  %v58 = add i64 %v54, 16
  %v59 = getelementptr i8, ptr %p2, i64 %v58
  %v60 = load <16 x i8>, ptr %v59, align 4
  %v61 = sext <16 x i8> %v60 to <16 x i16>
  %v62 = mul i64 %v53, 4
  %v63 = getelementptr i8, ptr %v27, i64 %v62
  %v64 = load i32, ptr %v63, align 1
  %v65 = insertelement <8 x i32> poison, i32 %v64, i32 0
  %v66 = shufflevector <8 x i32> %v65, <8 x i32> poison, <8 x i32> zeroinitializer
  %v67 = bitcast <8 x i32> %v66 to <16 x i16>
  %v68 = load <8 x i32>, ptr %s28
  %v69 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v67, <16 x i16> %v57)
  %v70 = add <8 x i32> %v68, %v69
  %v71 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v70)
  store <8 x i32> %v71, ptr %s28
  %v72 = load <8 x i32>, ptr %s29
  %v73 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v67, <16 x i16> %v61)
  %v74 = add <8 x i32> %v72, %v73
  %v75 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v74)
  store <8 x i32> %v75, ptr %s29
  call void asm sideeffect "", "~{memory}"()
  %v76 = add i64 %l30.i, 2
  %v77 = mul i64 %v76, 32
  %v78 = getelementptr i8, ptr %p2, i64 %v77
  %v79 = load <16 x i8>, ptr %v78, align 4
  %v80 = sext <16 x i8> %v79 to <16 x i16>
  %v81 = add i64 %v77, 16
  %v82 = getelementptr i8, ptr %p2, i64 %v81
  %v83 = load <16 x i8>, ptr %v82, align 4
  %v84 = sext <16 x i8> %v83 to <16 x i16>
  %v85 = mul i64 %v76, 4
  %v86 = getelementptr i8, ptr %v27, i64 %v85
  %v87 = load i32, ptr %v86, align 1
  %v88 = insertelement <8 x i32> poison, i32 %v87, i32 0
  %v89 = shufflevector <8 x i32> %v88, <8 x i32> poison, <8 x i32> zeroinitializer
  %v90 = bitcast <8 x i32> %v89 to <16 x i16>
  %v91 = load <8 x i32>, ptr %s28
  %v92 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v90, <16 x i16> %v80)
  %v93 = add <8 x i32> %v91, %v92
  %v94 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v93)
  store <8 x i32> %v94, ptr %s28
  %v95 = load <8 x i32>, ptr %s29
  %v96 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v90, <16 x i16> %v84)
  %v97 = add <8 x i32> %v95, %v96
  %v98 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v97)
  store <8 x i32> %v98, ptr %s29
  call void asm sideeffect "", "~{memory}"()
  %v99 = add i64 %l30.i, 3
  %v100 = mul i64 %v99, 32
  %v101 = getelementptr i8, ptr %p2, i64 %v100
  %v102 = load <16 x i8>, ptr %v101, align 4
  %v103 = sext <16 x i8> %v102 to <16 x i16>
  %v104 = add i64 %v100, 16
  %v105 = getelementptr i8, ptr %p2, i64 %v104
  %v106 = load <16 x i8>, ptr %v105, align 4
  %v107 = sext <16 x i8> %v106 to <16 x i16>
  %v108 = mul i64 %v99, 4
  %v109 = getelementptr i8, ptr %v27, i64 %v108
  %v110 = load i32, ptr %v109, align 1
  %v111 = insertelement <8 x i32> poison, i32 %v110, i32 0
  %v112 = shufflevector <8 x i32> %v111, <8 x i32> poison, <8 x i32> zeroinitializer
  %v113 = bitcast <8 x i32> %v112 to <16 x i16>
  %v114 = load <8 x i32>, ptr %s28
  %v115 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v113, <16 x i16> %v103)
  %v116 = add <8 x i32> %v114, %v115
  %v117 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v116)
  store <8 x i32> %v117, ptr %s28
  %v118 = load <8 x i32>, ptr %s29
  %v119 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v113, <16 x i16> %v107)
  %v120 = add <8 x i32> %v118, %v119
  %v121 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v120)
  store <8 x i32> %v121, ptr %s29
  %l30.next = add nuw nsw i64 %l30.i, 4
  %v122 = icmp slt i64 %l30.next, 8
  br i1 %v122, label %l30.body, label %l30.end
l30.end:
  %v123 = load <8 x i32>, ptr %s28
  store <8 x i32> %v123, ptr %s2, align 32
  %v124 = load <8 x i32>, ptr %s29
  %v125 = getelementptr i32, ptr %s2, i64 8
  store <8 x i32> %v124, ptr %v125, align 32
  %v126 = add i64 %v11, %l24.i
  %v127 = trunc i64 8 to i32
  %v128 = insertelement <16 x i32> poison, i32 %v127, i32 0
  %v129 = shufflevector <16 x i32> %v128, <16 x i32> poison, <16 x i32> zeroinitializer
  %v130 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v129
  %v131 = load <16 x i32>, ptr %s2, align 64
  %v132 = mul i64 %v126, 8
  %v133 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %p1, i32 1, <16 x i1> %v130, <16 x i8> zeroinitializer)
  %v134 = sext <16 x i8> %v133 to <16 x i32>
  %v135 = add <16 x i32> %v131, %v134
  %v136 = trunc <16 x i32> %v135 to <16 x i8>
  %v137 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v136, <16 x i8> splat (i8 0))
  %v138 = add <16 x i8> %v137, %v137
  %v139 = getelementptr i8, ptr %p3, i64 %v132
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v137, ptr %v139, i32 1, <16 x i1> %v130)
  %v140 = getelementptr i8, ptr %p4, i64 %v132
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v138, ptr %v140, i32 1, <16 x i1> %v130)
  %l24.next = add nuw nsw i64 %l24.i, 1
  %v141 = icmp slt i64 %l24.next, %v13
  br i1 %v141, label %l24.body, label %l24.end
l24.end:
  %v142 = mul i64 %v13, 64
  %v143 = getelementptr i8, ptr %s1, i64 %v142
  %v144 = call ptr asm "", "=r,0"(ptr %v143)
  %v145 = sub i64 %v13, %v13
  br label %rest146
rest146:
  %v147 = icmp slt i64 0, %v145
  br i1 %v147, label %l148.body, label %l148.end
l148.body:
  %l148.i = phi i64 [ 0, %rest146 ], [ %l148.next, %l148.body ]
  %v149 = add i64 %v13, %l148.i
  %v150 = add i64 %v11, %v149
  %v151 = mul i64 %l148.i, 16
  %v152 = getelementptr i32, ptr %s2, i64 %v151
  %v153 = trunc i64 8 to i32
  %v154 = insertelement <16 x i32> poison, i32 %v153, i32 0
  %v155 = shufflevector <16 x i32> %v154, <16 x i32> poison, <16 x i32> zeroinitializer
  %v156 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v155
  %v157 = load <16 x i32>, ptr %v152, align 64
  %v158 = mul i64 %v150, 8
  %v159 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %p1, i32 1, <16 x i1> %v156, <16 x i8> zeroinitializer)
  %v160 = sext <16 x i8> %v159 to <16 x i32>
  %v161 = add <16 x i32> %v157, %v160
  %v162 = trunc <16 x i32> %v161 to <16 x i8>
  %v163 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v162, <16 x i8> splat (i8 0))
  %v164 = add <16 x i8> %v163, %v163
  %v165 = getelementptr i8, ptr %p3, i64 %v158
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v163, ptr %v165, i32 1, <16 x i1> %v156)
  %v166 = getelementptr i8, ptr %p4, i64 %v158
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v164, ptr %v166, i32 1, <16 x i1> %v156)
  %l148.next = add nuw nsw i64 %l148.i, 1
  %v167 = icmp slt i64 %l148.next, %v145
  br i1 %v167, label %l148.body, label %l148.end
l148.end:
  %l4.next = add nuw nsw i64 %l4.i, 1
  %v168 = icmp slt i64 %l4.next, %last
  br i1 %v168, label %l4.body, label %l4.end
l4.end:
  ret void
}
