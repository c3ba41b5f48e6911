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
  %s41 = alloca <8 x i32>
  %s42 = alloca <8 x i32>
  %v4 = icmp slt i64 %first, %last
  br i1 %v4, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l32.end ]
  %v5 = and i64 %size0, 4294967295
  %v6 = and i64 %l3.i, 2147483647
  %v7 = mul i64 %v6, %v5
  %v8 = lshr i64 %v7, %size1
  %v9 = mul i64 %v8, %size2
  %v10 = sub i64 %l3.i, %v9
  %v11 = mul i64 %v10, 16
  %v12 = sub i64 %size3, %v11
  %v13 = call i64 @llvm.smin.i64(i64 %v12, i64 16)
  %v15 = icmp slt i64 0, %v13
  br i1 %v15, label %l14.body, label %l14.end
l14.body:
  %l14.i = phi i64 [ 0, %l3.body ], [ %l14.next, %l19.end ]
  %v16 = add i64 %v11, %l14.i
  %v17 = mul i64 %l14.i, 64
  %v18 = getelementptr i8, ptr %s1, i64 %v17
  %v20 = icmp slt i64 0, 1
  br i1 %v20, label %l19.body, label %l19.end
l19.body:
  %l19.i = phi i64 [ 0, %l14.body ], [ %l19.next, %l19.body ]
  %v21 = mul i64 %l19.i, 32
  %v22 = getelementptr i8, ptr %v18, i64 %v21
  %v23 = mul i64 %v16, 16
  %v24 = getelementptr i8, ptr %p0, i64 %v23
  %v25 = load <16 x i8>, ptr %v24, align 1
  %v26 = sext <16 x i8> %v25 to <16 x i16>
  %v27 = getelementptr i8, ptr %v22, i64 0
  store <16 x i16> %v26, ptr %v27, align 2
  %l19.next = add nuw nsw i64 %l19.i, 1
  %v28 = icmp slt i64 %l19.next, 1
  br i1 %v28, label %l19.body, label %l19.end
l19.end:
  %l14.next = add nuw nsw i64 %l14.i, 1
  %v29 = icmp slt i64 %l14.next, %v13
  br i1 %v29, label %l14.body, label %l14.end
l14.end:
  %v30 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v31 = call i64 @llvm.smin.i64(i64 %v30, i64 1)
  %v33 = icmp slt i64 0, %v31
  br i1 %v33, label %l32.body, label %l32.end
l32.body:
  %l32.i = phi i64 [ 0, %l14.end ], [ %l32.next, %l182.end ]
  %v34 = mul i64 %l32.i, 256
  %v35 = getelementptr i8, ptr %p2, i64 %v34
  %v37 = icmp slt i64 0, %v13
  br i1 %v37, label %l36.body, label %l36.end
l36.body:
  %l36.i = phi i64 [ 0, %l32.body ], [ %l36.next, %l151.end ]
  %v38 = mul i64 %l36.i, 64
  %v39 = getelementptr i8, ptr %s1, i64 %v38
  %v40 = call ptr asm "", "=r,0"(ptr %v39)
  store <8 x i32> splat (i32 0), ptr %s41
  store <8 x i32> splat (i32 0), ptr %s42
  %v44 = icmp slt i64 0, 1
  br i1 %v44, label %l43.body, label %l43.end
l43.body:
  %l43.i = phi i64 [ 0, %l36.body ], [ %l43.next, %l48.end ]
  %v45 = mul i64 %l43.i, 256
  %v46 = getelementptr i8, ptr %v35, i64 %v45
  %v47 = getelementptr i8, ptr %v40, i64 0
  %v49 = icmp slt i64 0, 8
  br i1 %v49, label %l48.body, label %l48.end
l48.body:
  %l48.i = phi i64 [ 0, %l43.body ], [ %l48.next, %l48.body ]
  %v50 = mul i64 %l48.i, 32
  %v51 = getelementptr i8, ptr %v46, i64 %v50
  %v52 = load <16 x i8>, ptr %v51, align 4
  %v53 = sext <16 x i8> %v52 to <16 x i16>
  %v54 = mul i64 %l48.i, 32
  %v55 = add i64 %v54, 16
  %v56 = getelementptr i8, ptr %v46, i64 %v55
  %v57 = load <16 x i8>, ptr %v56, align 4
  %v58 = sext <16 x i8> %v57 to <16 x i16>
  %v59 = mul i64 %l48.i, 4
  %v60 = getelementptr i8, ptr %v47, i64 %v59
  %v61 = load i32, ptr %v60, align 1
  %v62 = insertelement <8 x i32> poison, i32 %v61, i32 0
  %v63 = shufflevector <8 x i32> %v62, <8 x i32> poison, <8 x i32> zeroinitializer
  %v64 = bitcast <8 x i32> %v63 to <16 x i16>
  %v65 = load <8 x i32>, ptr %s41
  %v66 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v64, <16 x i16> %v53)
  %v67 = add <8 x i32> %v65, %v66
  %v68 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v67)
  store <8 x i32> %v68, ptr %s41
  %v69 = load <8 x i32>, ptr %s42
  %v70 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v64, <16 x i16> %v58)
  %v71 = add <8 x i32> %v69, %v70
  %v72 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v71)
  store <8 x i32> %v72, ptr %s42
  call void asm sideeffect "", "~{memory}"()
  %v73 = add i64 %l48.i, 1
  %v74 = mul i64 %v73, 32
  %v75 = getelementptr i8, ptr %v46, i64 %v74
  %v76 = load <16 x i8>, ptr %v75, align 4
  %v77 = sext <16 x i8> %v76 to <16 x i16>
  %v78 = mul i64 %v73, 32
  %v79 = add i64 %v78, 16
  %v80 = getelementptr i8, ptr %v46, i64 %v79
  %v81 = load <16 x i8>, ptr %v80, align 4
  %v82 = sext <16 x i8> %v81 to <16 x i16>
  %v83 = mul i64 %v73, 4
  %v84 = getelementptr i8, ptr %v47, i64 %v83
  %v85 = load i32, ptr %v84, align 1
  %v86 = insertelement <8 x i32> poison, i32 %v85, i32 0
  %v87 = shufflevector <8 x i32> %v86, <8 x i32> poison, <8 x i32> zeroinitializer
  %v88 = bitcast <8 x i32> %v87 to <16 x i16>
  %v89 = load <8 x i32>, ptr %s41
  %v90 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v88, <16 x i16> %v77)
  %v91 = add <8 x i32> %v89, %v90
  %v92 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v91)
  store <8 x i32> %v92, ptr %s41
  %v93 = load <8 x i32>, ptr %s42
  %v94 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v88, <16 x i16> %v82)
  %v95 = add <8 x i32> %v93, %v94
  %v96 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v95)
  store <8 x i32> %v96, ptr %s42
  call void asm sideeffect "", "~{memory}"()
  %v97 = add i64 %l48.i, 2
  %v98 = mul i64 %v97, 32
  %v99 = getelementptr i8, ptr %v46, i64 %v98
  %v100 = load <16 x i8>, ptr %v99, align 4
  %v101 = sext <16 x i8> %v100 to <16 x i16>
  %v102 = mul i64 %v97, 32
  %v103 = add i64 %v102, 16
  %v104 = getelementptr i8, ptr %v46, i64 %v103
  %v105 = load <16 x i8>, ptr %v104, align 4
  %v106 = sext <16 x i8> %v105 to <16 x i16>
  %v107 = mul i64 %v97, 4
  %v108 = getelementptr i8, ptr %v47, i64 %v107
  %v109 = load i32, ptr %v108, align 1
  %v110 = insertelement <8 x i32> poison, i32 %v109, i32 0
  %v111 = shufflevector <8 x i32> %v110, <8 x i32> poison, <8 x i32> zeroinitializer
  %v112 = bitcast <8 x i32> %v111 to <16 x i16>
  %v113 = load <8 x i32>, ptr %s41
  %v114 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v112, <16 x i16> %v101)
  %v115 = add <8 x i32> %v113, %v114
  %v116 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v115)
  store <8 x i32> %v116, ptr %s41
  %v117 = load <8 x i32>, ptr %s42
  %v118 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v112, <16 x i16> %v106)
  %v119 = add <8 x i32> %v117, %v118
  %v120 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v119)
  store <8 x i32> %v120, ptr %s42
  call void asm sideeffect "", "~{memory}"()
  %v121 = add i64 %l48.i, 3
  %v122 = mul i64 %v121, 32
  %v123 = getelementptr i8, ptr %v46, i64 %v122
  %v124 = load <16 x i8>, ptr %v123, align 4
  %v125 = sext <16 x i8> %v124 to <16 x i16>
  %v126 = mul i64 %v121, 32
  %v127 = add i64 %v126, 16
  %v128 = getelementptr i8, ptr %v46, i64 %v127
  %v129 = load <16 x i8>, ptr %v128, align 4
  %v130 = sext <16 x i8> %v129 to <16 x i16>
  %v131 = mul i64 %v121, 4
  %v132 = getelementptr i8, ptr %v47, i64 %v131
  %v133 = load i32, ptr %v132, align 1
  %v134 = insertelement <8 x i32> poison, i32 %v133, i32 0
  %v135 = shufflevector <8 x i32> %v134, <8 x i32> poison, <8 x i32> zeroinitializer
  %v136 = bitcast <8 x i32> %v135 to <16 x i16>
  %v137 = load <8 x i32>, ptr %s41
  %v138 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v136, <16 x i16> %v125)
  %v139 = add <8 x i32> %v137, %v138
  %v140 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v139)
  store <8 x i32> %v140, ptr %s41
  %v141 = load <8 x i32>, ptr %s42
  %v142 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v136, <16 x i16> %v130)
  %v143 = add <8 x i32> %v141, %v142
  %v144 = call <8 x i32> asm "", "=v,0"(<8 x i32> %v143)
  store <8 x i32> %v144, ptr %s42
  %l48.next = add nuw nsw i64 %l48.i, 4
  %v145 = icmp slt i64 %l48.next, 8
  br i1 %v145, label %l48.body, label %l48.end
l48.end:
  %l43.next = add nuw nsw i64 %l43.i, 1
  %v146 = icmp slt i64 %l43.next, 1
  br i1 %v146, label %l43.body, label %l43.end
l43.end:
  %v147 = load <8 x i32>, ptr %s41
  %v148 = getelementptr i32, ptr %s2, i64 0
  store <8 x i32> %v147, ptr %v148, align 32
  %v149 = load <8 x i32>, ptr %s42
  %v150 = getelementptr i32, ptr %s2, i64 8
  store <8 x i32> %v149, ptr %v150, align 32
  %v152 = icmp slt i64 0, 1
  br i1 %v152, label %l151.body, label %l151.end
l151.body:
  %l151.i = phi i64 [ 0, %l43.end ], [ %l151.next, %l151.body ]
  %v153 = add i64 %l36.i, %l151.i
  %v154 = add i64 %v11, %v153
  %v155 = mul i64 %l151.i, 16
  %v156 = getelementptr i32, ptr %s2, i64 %v155
  %v157 = mul i64 %l32.i, 16
  %v158 = sub i64 8, %v157
  %v159 = trunc i64 %v158 to i32
  %v160 = insertelement <16 x i32> poison, i32 %v159, i32 0
  %v161 = shufflevector <16 x i32> %v160, <16 x i32> poison, <16 x i32> zeroinitializer
  %v162 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v161
  %v163 = getelementptr i32, ptr %v156, i64 0
  %v164 = load <16 x i32>, ptr %v163, align 64
  %v165 = mul i64 %v154, 8
  %v166 = getelementptr i8, ptr %p1, i64 0
  %v167 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %v166, i32 1, <16 x i1> %v162, <16 x i8> zeroinitializer)
  %v168 = sext <16 x i8> %v167 to <16 x i32>
  %v169 = add <16 x i32> %v164, %v168
  %v170 = trunc <16 x i32> %v169 to <16 x i8>
  %v171 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v170, <16 x i8> splat (i8 0))
  %v172 = add <16 x i8> %v171, %v171
  %v173 = getelementptr i8, ptr %p3, i64 %v165
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v171, ptr %v173, i32 1, <16 x i1> %v162)
  %v174 = getelementptr i8, ptr %p4, i64 %v165
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v172, ptr %v174, i32 1, <16 x i1> %v162)
  %l151.next = add nuw nsw i64 %l151.i, 1
  %v175 = icmp slt i64 %l151.next, 1
  br i1 %v175, label %l151.body, label %l151.end
l151.end:
  %l36.next = add nuw nsw i64 %l36.i, 1
  %v176 = icmp slt i64 %l36.next, %v13
  br i1 %v176, label %l36.body, label %l36.end
l36.end:
  %v177 = mul i64 %v13, 64
  %v178 = getelementptr i8, ptr %s1, i64 %v177
  %v179 = call ptr asm "", "=r,0"(ptr %v178)
  %v180 = sub i64 %v13, %v13
  br label %rest181
rest181:
  %v183 = icmp slt i64 0, %v180
  br i1 %v183, label %l182.body, label %l182.end
l182.body:
  %l182.i = phi i64 [ 0, %rest181 ], [ %l182.next, %l182.body ]
  %v184 = add i64 %v13, %l182.i
  %v185 = add i64 %v11, %v184
  %v186 = mul i64 %l182.i, 16
  %v187 = getelementptr i32, ptr %s2, i64 %v186
  %v188 = mul i64 %l32.i, 16
  %v189 = sub i64 8, %v188
  %v190 = trunc i64 %v189 to i32
  %v191 = insertelement <16 x i32> poison, i32 %v190, i32 0
  %v192 = shufflevector <16 x i32> %v191, <16 x i32> poison, <16 x i32> zeroinitializer
  %v193 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v192
  %v194 = getelementptr i32, ptr %v187, i64 0
  %v195 = load <16 x i32>, ptr %v194, align 64
  %v196 = mul i64 %v185, 8
  %v197 = getelementptr i8, ptr %p1, i64 0
  %v198 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %v197, i32 1, <16 x i1> %v193, <16 x i8> zeroinitializer)
  %v199 = sext <16 x i8> %v198 to <16 x i32>
  %v200 = add <16 x i32> %v195, %v199
  %v201 = trunc <16 x i32> %v200 to <16 x i8>
  %v202 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v201, <16 x i8> splat (i8 0))
  %v203 = add <16 x i8> %v202, %v202
  %v204 = getelementptr i8, ptr %p3, i64 %v196
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v202, ptr %v204, i32 1, <16 x i1> %v193)
  %v205 = getelementptr i8, ptr %p4, i64 %v196
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v203, ptr %v205, i32 1, <16 x i1> %v193)
  %l182.next = add nuw nsw i64 %l182.i, 1
  %v206 = icmp slt i64 %l182.next, %v180
  br i1 %v206, label %l182.body, label %l182.end
l182.end:
  %l32.next = add nuw nsw i64 %l32.i, 1
  %v207 = icmp slt i64 %l32.next, %v31
  br i1 %v207, label %l32.body, label %l32.end
l32.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v208 = icmp slt i64 %l3.next, %last
  br i1 %v208, label %l3.body, label %l3.end
l3.end:
  ret void
}
