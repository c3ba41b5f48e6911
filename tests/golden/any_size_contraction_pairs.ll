; matmul nx8x16
; problem   batch=1 m=150 n=8 k=16 run=16 outer=1 nbytes=1 straight=1 b_constant=1 b_batched=0 b_along_k=0 window=1 images=1 out_y=1 out_x=150 taps_y=1 taps_x=1 stride_y=1 stride_x=1 channels=16 planes=0 signed=1 pairs=1  (an example: each run decides its sizes)
; schedule  panels=1 pack_a=0 tiles_n=1 tile_m=16 pack_b=2 across=0 ahead=0 rows=1
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
  %s1 = alloca [16 x i32], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %s27 = alloca <8 x i32>
  %s28 = alloca <8 x i32>
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
  %v13 = getelementptr i8, ptr %p0, i64 0
  %v14 = mul i64 %v10, 16
  %v15 = getelementptr i8, ptr %v13, i64 %v14
  %v16 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v17 = call i64 @llvm.smin.i64(i64 %v16, i64 1)
  %v19 = icmp slt i64 0, %v17
  br i1 %v19, label %l18.body, label %l18.end
l18.body:
  %l18.i = phi i64 [ 0, %l2.body ], [ %l18.next, %l220.end ]
  %v20 = mul i64 %l18.i, 256
  %v21 = getelementptr i8, ptr %p2, i64 %v20
  %v23 = icmp slt i64 0, %v12
  br i1 %v23, label %l22.body, label %l22.end
l22.body:
  %l22.i = phi i64 [ 0, %l18.body ], [ %l22.next, %l189.end ]
  %v24 = mul i64 %l22.i, 16
  %v25 = getelementptr i8, ptr %v15, i64 %v24
  %v26 = call ptr asm "", "=r,0"(ptr %v25)
  store <8 x i32> splat (i32 0), ptr %s27
  store <8 x i32> splat (i32 0), ptr %s28
  %v30 = icmp slt i64 0, 1
  br i1 %v30, label %l29.body, label %l29.end
l29.body:
  %l29.i = phi i64 [ 0, %l22.body ], [ %l29.next, %l34.end ]
  %v31 = mul i64 %l29.i, 256
  %v32 = getelementptr i8, ptr %v21, i64 %v31
  %v33 = getelementptr i8, ptr %v26, i64 0
  %v35 = icmp slt i64 0, 4
  br i1 %v35, label %l34.body, label %l34.end
l34.body:
  %l34.i = phi i64 [ 0, %l29.body ], [ %l34.next, %l34.body ]
  %v36 = mul i64 %l34.i, 64
  %v37 = getelementptr i8, ptr %v32, i64 %v36
  %v38 = load <8 x i32>, ptr %v37, align 4
  %v39 = bitcast <8 x i32> %v38 to <16 x i16>
  %v40 = shl <16 x i16> %v39, splat (i16 8)
  %v41 = ashr <16 x i16> %v40, splat (i16 8)
  %v42 = ashr <16 x i16> %v39, splat (i16 8)
  %v43 = mul i64 %l34.i, 64
  %v44 = add i64 %v43, 32
  %v45 = getelementptr i8, ptr %v32, i64 %v44
  %v46 = load <8 x i32>, ptr %v45, align 4
  %v47 = bitcast <8 x i32> %v46 to <16 x i16>
  %v48 = shl <16 x i16> %v47, splat (i16 8)
  %v49 = ashr <16 x i16> %v48, splat (i16 8)
  %v50 = ashr <16 x i16> %v47, splat (i16 8)
  %v51 = mul i64 %l34.i, 4
  %v52 = getelementptr i8, ptr %v33, i64 %v51
  %v53 = load i32, ptr %v52, align 1
  %v54 = insertelement <8 x i32> poison, i32 %v53, i32 0
  %v55 = shufflevector <8 x i32> %v54, <8 x i32> poison, <8 x i32> zeroinitializer
  %v56 = bitcast <8 x i32> %v55 to <16 x i16>
  %v57 = shl <16 x i16> %v56, splat (i16 8)
  %v58 = ashr <16 x i16> %v57, splat (i16 8)
  %v59 = ashr <16 x i16> %v56, splat (i16 8)
  %v60 = load <8 x i32>, ptr %s27
  %v61 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v58, <16 x i16> %v41)
  %v62 = add <8 x i32> %v60, %v61
  store <8 x i32> %v62, ptr %s27
  %v63 = load <8 x i32>, ptr %s27
  %v64 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v59, <16 x i16> %v42)
  %v65 = add <8 x i32> %v63, %v64
  store <8 x i32> %v65, ptr %s27
  %v66 = load <8 x i32>, ptr %s28
  %v67 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v58, <16 x i16> %v49)
  %v68 = add <8 x i32> %v66, %v67
  store <8 x i32> %v68, ptr %s28
  %v69 = load <8 x i32>, ptr %s28
  %v70 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v59, <16 x i16> %v50)
  %v71 = add <8 x i32> %v69, %v70
  store <8 x i32> %v71, ptr %s28
  call void asm sideeffect "", "~{memory}"()
  %v72 = add i64 %l34.i, 1
  %v73 = mul i64 %v72, 64
  %v74 = getelementptr i8, ptr %v32, i64 %v73
  %v75 = load <8 x i32>, ptr %v74, align 4
  %v76 = bitcast <8 x i32> %v75 to <16 x i16>
  %v77 = shl <16 x i16> %v76, splat (i16 8)
  %v78 = ashr <16 x i16> %v77, splat (i16 8)
  %v79 = ashr <16 x i16> %v76, splat (i16 8)
  %v80 = mul i64 %v72, 64
  %v81 = add i64 %v80, 32
  %v82 = getelementptr i8, ptr %v32, i64 %v81
  %v83 = load <8 x i32>, ptr %v82, align 4
  %v84 = bitcast <8 x i32> %v83 to <16 x i16>
  %v85 = shl <16 x i16> %v84, splat (i16 8)
  %v86 = ashr <16 x i16> %v85, splat (i16 8)
  %v87 = ashr <16 x i16> %v84, splat (i16 8)
  %v88 = mul i64 %v72, 4
  %v89 = getelementptr i8, ptr %v33, i64 %v88
  %v90 = load i32, ptr %v89, align 1
  %v91 = insertelement <8 x i32> poison, i32 %v90, i32 0
  %v92 = shufflevector <8 x i32> %v91, <8 x i32> poison, <8 x i32> zeroinitializer
  %v93 = bitcast <8 x i32> %v92 to <16 x i16>
  %v94 = shl <16 x i16> %v93, splat (i16 8)
  %v95 = ashr <16 x i16> %v94, splat (i16 8)
  %v96 = ashr <16 x i16> %v93, splat (i16 8)
  %v97 = load <8 x i32>, ptr %s27
  %v98 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v95, <16 x i16> %v78)
  %v99 = add <8 x i32> %v97, %v98
  store <8 x i32> %v99, ptr %s27
  %v100 = load <8 x i32>, ptr %s27
  %v101 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v96, <16 x i16> %v79)
  %v102 = add <8 x i32> %v100, %v101
  store <8 x i32> %v102, ptr %s27
  %v103 = load <8 x i32>, ptr %s28
  %v104 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v95, <16 x i16> %v86)
  %v105 = add <8 x i32> %v103, %v104
  store <8 x i32> %v105, ptr %s28
  %v106 = load <8 x i32>, ptr %s28
  %v107 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v96, <16 x i16> %v87)
  %v108 = add <8 x i32> %v106, %v107
  store <8 x i32> %v108, ptr %s28
  call void asm sideeffect "", "~{memory}"()
  %v109 = add i64 %l34.i, 2
  %v110 = mul i64 %v109, 64
  %v111 = getelementptr i8, ptr %v32, i64 %v110
  %v112 = load <8 x i32>, ptr %v111, align 4
  %v113 = bitcast <8 x i32> %v112 to <16 x i16>
  %v114 = shl <16 x i16> %v113, splat (i16 8)
  %v115 = ashr <16 x i16> %v114, splat (i16 8)
  %v116 = ashr <16 x i16> %v113, splat (i16 8)
  %v117 = mul i64 %v109, 64
  %v118 = add i64 %v117, 32
  %v119 = getelementptr i8, ptr %v32, i64 %v118
  %v120 = load <8 x i32>, ptr %v119, align 4
  %v121 = bitcast <8 x i32> %v120 to <16 x i16>
  %v122 = shl <16 x i16> %v121, splat (i16 8)
  %v123 = ashr <16 x i16> %v122, splat (i16 8)
  %v124 = ashr <16 x i16> %v121, splat (i16 8)
  %v125 = mul i64 %v109, 4
  %v126 = getelementptr i8, ptr %v33, i64 %v125
  %v127 = load i32, ptr %v126, align 1
  %v128 = insertelement <8 x i32> poison, i32 %v127, i32 0
  %v129 = shufflevector <8 x i32> %v128, <8 x i32> poison, <8 x i32> zeroinitializer
  %v130 = bitcast <8 x i32> %v129 to <16 x i16>
  %v131 = shl <16 x i16> %v130, splat (i16 8)
  %v132 = ashr <16 x i16> %v131, splat (i16 8)
  %v133 = ashr <16 x i16> %v130, splat (i16 8)
  %v134 = load <8 x i32>, ptr %s27
  %v135 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v132, <16 x i16> %v115)
  %v136 = add <8 x i32> %v134, %v135
  store <8 x i32> %v136, ptr %s27
  %v137 = load <8 x i32>, ptr %s27
  %v138 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v133, <16 x i16> %v116)
  %v139 = add <8 x i32> %v137, %v138
  store <8 x i32> %v139, ptr %s27
  %v140 = load <8 x i32>, ptr %s28
  %v141 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v132, <16 x i16> %v123)
  %v142 = add <8 x i32> %v140, %v141
  store <8 x i32> %v142, ptr %s28
  %v143 = load <8 x i32>, ptr %s28
  %v144 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v133, <16 x i16> %v124)
  %v145 = add <8 x i32> %v143, %v144
  store <8 x i32> %v145, ptr %s28
  call void asm sideeffect "", "~{memory}"()
  %v146 = add i64 %l34.i, 3
  %v147 = mul i64 %v146, 64
  %v148 = getelementptr i8, ptr %v32, i64 %v147
  %v149 = load <8 x i32>, ptr %v148, align 4
  %v150 = bitcast <8 x i32> %v149 to <16 x i16>
  %v151 = shl <16 x i16> %v150, splat (i16 8)
  %v152 = ashr <16 x i16> %v151, splat (i16 8)
  %v153 = ashr <16 x i16> %v150, splat (i16 8)
  %v154 = mul i64 %v146, 64
  %v155 = add i64 %v154, 32
  %v156 = getelementptr i8, ptr %v32, i64 %v155
  %v157 = load <8 x i32>, ptr %v156, align 4
  %v158 = bitcast <8 x i32> %v157 to <16 x i16>
  %v159 = shl <16 x i16> %v158, splat (i16 8)
  %v160 = ashr <16 x i16> %v159, splat (i16 8)
  %v161 = ashr <16 x i16> %v158, splat (i16 8)
  %v162 = mul i64 %v146, 4
  %v163 = getelementptr i8, ptr %v33, i64 %v162
  %v164 = load i32, ptr %v163, align 1
  %v165 = insertelement <8 x i32> poison, i32 %v164, i32 0
  %v166 = shufflevector <8 x i32> %v165, <8 x i32> poison, <8 x i32> zeroinitializer
  %v167 = bitcast <8 x i32> %v166 to <16 x i16>
  %v168 = shl <16 x i16> %v167, splat (i16 8)
  %v169 = ashr <16 x i16> %v168, splat (i16 8)
  %v170 = ashr <16 x i16> %v167, splat (i16 8)
  %v171 = load <8 x i32>, ptr %s27
  %v172 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v169, <16 x i16> %v152)
  %v173 = add <8 x i32> %v171, %v172
  store <8 x i32> %v173, ptr %s27
  %v174 = load <8 x i32>, ptr %s27
  %v175 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v170, <16 x i16> %v153)
  %v176 = add <8 x i32> %v174, %v175
  store <8 x i32> %v176, ptr %s27
  %v177 = load <8 x i32>, ptr %s28
  %v178 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v169, <16 x i16> %v160)
  %v179 = add <8 x i32> %v177, %v178
  store <8 x i32> %v179, ptr %s28
  %v180 = load <8 x i32>, ptr %s28
  %v181 = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %v170, <16 x i16> %v161)
  %v182 = add <8 x i32> %v180, %v181
  store <8 x i32> %v182, ptr %s28
  %l34.next = add nuw nsw i64 %l34.i, 4
  %v183 = icmp slt i64 %l34.next, 4
  br i1 %v183, label %l34.body, label %l34.end
l34.end:
  %l29.next = add nuw nsw i64 %l29.i, 1
  %v184 = icmp slt i64 %l29.next, 1
  br i1 %v184, label %l29.body, label %l29.end
l29.end:
  %v185 = load <8 x i32>, ptr %s27
  %v186 = getelementptr i32, ptr %s1, i64 0
  store <8 x i32> %v185, ptr %v186, align 32
  %v187 = load <8 x i32>, ptr %s28
  %v188 = getelementptr i32, ptr %s1, i64 8
  store <8 x i32> %v187, ptr %v188, align 32
  %v190 = icmp slt i64 0, 1
  br i1 %v190, label %l189.body, label %l189.end
l189.body:
  %l189.i = phi i64 [ 0, %l29.end ], [ %l189.next, %l189.body ]
  %v191 = add i64 %l22.i, %l189.i
  %v192 = add i64 %v10, %v191
  %v193 = mul i64 %l189.i, 16
  %v194 = getelementptr i32, ptr %s1, i64 %v193
  %v195 = mul i64 %l18.i, 16
  %v196 = sub i64 8, %v195
  %v197 = trunc i64 %v196 to i32
  %v198 = insertelement <16 x i32> poison, i32 %v197, i32 0
  %v199 = shufflevector <16 x i32> %v198, <16 x i32> poison, <16 x i32> zeroinitializer
  %v200 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v199
  %v201 = getelementptr i32, ptr %v194, i64 0
  %v202 = load <16 x i32>, ptr %v201, align 64
  %v203 = mul i64 %v192, 8
  %v204 = getelementptr i8, ptr %p1, i64 0
  %v205 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %v204, i32 1, <16 x i1> %v200, <16 x i8> zeroinitializer)
  %v206 = sext <16 x i8> %v205 to <16 x i32>
  %v207 = add <16 x i32> %v202, %v206
  %v208 = trunc <16 x i32> %v207 to <16 x i8>
  %v209 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v208, <16 x i8> splat (i8 0))
  %v210 = add <16 x i8> %v209, %v209
  %v211 = getelementptr i8, ptr %p3, i64 %v203
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v209, ptr %v211, i32 1, <16 x i1> %v200)
  %v212 = getelementptr i8, ptr %p4, i64 %v203
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v210, ptr %v212, i32 1, <16 x i1> %v200)
  %l189.next = add nuw nsw i64 %l189.i, 1
  %v213 = icmp slt i64 %l189.next, 1
  br i1 %v213, label %l189.body, label %l189.end
l189.end:
  %l22.next = add nuw nsw i64 %l22.i, 1
  %v214 = icmp slt i64 %l22.next, %v12
  br i1 %v214, label %l22.body, label %l22.end
l22.end:
  %v215 = mul i64 %v12, 16
  %v216 = getelementptr i8, ptr %v15, i64 %v215
  %v217 = call ptr asm "", "=r,0"(ptr %v216)
  %v218 = sub i64 %v12, %v12
  br label %rest219
rest219:
  %v221 = icmp slt i64 0, %v218
  br i1 %v221, label %l220.body, label %l220.end
l220.body:
  %l220.i = phi i64 [ 0, %rest219 ], [ %l220.next, %l220.body ]
  %v222 = add i64 %v12, %l220.i
  %v223 = add i64 %v10, %v222
  %v224 = mul i64 %l220.i, 16
  %v225 = getelementptr i32, ptr %s1, i64 %v224
  %v226 = mul i64 %l18.i, 16
  %v227 = sub i64 8, %v226
  %v228 = trunc i64 %v227 to i32
  %v229 = insertelement <16 x i32> poison, i32 %v228, i32 0
  %v230 = shufflevector <16 x i32> %v229, <16 x i32> poison, <16 x i32> zeroinitializer
  %v231 = icmp slt <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>, %v230
  %v232 = getelementptr i32, ptr %v225, i64 0
  %v233 = load <16 x i32>, ptr %v232, align 64
  %v234 = mul i64 %v223, 8
  %v235 = getelementptr i8, ptr %p1, i64 0
  %v236 = call <16 x i8> @llvm.masked.load.v16i8.p0(ptr %v235, i32 1, <16 x i1> %v231, <16 x i8> zeroinitializer)
  %v237 = sext <16 x i8> %v236 to <16 x i32>
  %v238 = add <16 x i32> %v233, %v237
  %v239 = trunc <16 x i32> %v238 to <16 x i8>
  %v240 = call <16 x i8> @llvm.smax.v16i8(<16 x i8> %v239, <16 x i8> splat (i8 0))
  %v241 = add <16 x i8> %v240, %v240
  %v242 = getelementptr i8, ptr %p3, i64 %v234
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v240, ptr %v242, i32 1, <16 x i1> %v231)
  %v243 = getelementptr i8, ptr %p4, i64 %v234
  call void @llvm.masked.store.v16i8.p0(<16 x i8> %v241, ptr %v243, i32 1, <16 x i1> %v231)
  %l220.next = add nuw nsw i64 %l220.i, 1
  %v244 = icmp slt i64 %l220.next, %v218
  br i1 %v244, label %l220.body, label %l220.end
l220.end:
  %l18.next = add nuw nsw i64 %l18.i, 1
  %v245 = icmp slt i64 %l18.next, %v17
  br i1 %v245, label %l18.body, label %l18.end
l18.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v246 = icmp slt i64 %l2.next, %last
  br i1 %v246, label %l2.body, label %l2.end
l2.end:
  ret void
}
