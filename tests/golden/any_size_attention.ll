; attention 2x1x4xnx4x4
; problem   batch=2 m=4 n=150 depth=4 values=4 causal=-1 last_rows=4 copied_k=0 copied_v=0 turned=0  (an example: each run decides its sizes)
; schedule  lanes=4 vectors=1 keys=1 tile_n=16
; engine    attention

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define void @k.1(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [16 x float], align 64
  %s2 = alloca [16 x float], align 64
  %s3 = alloca [64 x float], align 64
  %s4 = alloca <4 x float>
  %s5 = alloca <4 x float>
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s78 = alloca <4 x float>
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %s211 = alloca <4 x float>
  %v7 = icmp slt i64 0, 1
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ 0, %entry ], [ %l6.next, %l10.end ]
  %v8 = mul i64 %l6.i, 4
  %v9 = add i64 %last, %v8
  %v11 = icmp slt i64 0, 4
  br i1 %v11, label %l10.body, label %l10.end
l10.body:
  %l10.i = phi i64 [ 0, %l6.body ], [ %l10.next, %l10.body ]
  %v12 = mul i64 %first, 16
  %v13 = mul i64 %v9, 4
  %v14 = add i64 %v12, %v13
  %v15 = add i64 %v14, %l10.i
  %v16 = getelementptr float, ptr %p0, i64 %v15
  %v17 = load <4 x float>, ptr %v16, align 4
  %v18 = add i64 %v9, 1
  %v19 = mul i64 %first, 16
  %v20 = mul i64 %v18, 4
  %v21 = add i64 %v19, %v20
  %v22 = add i64 %v21, %l10.i
  %v23 = getelementptr float, ptr %p0, i64 %v22
  %v24 = load <4 x float>, ptr %v23, align 4
  %v25 = add i64 %v9, 2
  %v26 = mul i64 %first, 16
  %v27 = mul i64 %v25, 4
  %v28 = add i64 %v26, %v27
  %v29 = add i64 %v28, %l10.i
  %v30 = getelementptr float, ptr %p0, i64 %v29
  %v31 = load <4 x float>, ptr %v30, align 4
  %v32 = add i64 %v9, 3
  %v33 = mul i64 %first, 16
  %v34 = mul i64 %v32, 4
  %v35 = add i64 %v33, %v34
  %v36 = add i64 %v35, %l10.i
  %v37 = getelementptr float, ptr %p0, i64 %v36
  %v38 = load <4 x float>, ptr %v37, align 4
  %v39 = shufflevector <4 x float> %v17, <4 x float> %v31, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v40 = shufflevector <4 x float> %v17, <4 x float> %v31, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v41 = shufflevector <4 x float> %v24, <4 x float> %v38, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v42 = shufflevector <4 x float> %v24, <4 x float> %v38, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v43 = shufflevector <4 x float> %v39, <4 x float> %v41, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v44 = shufflevector <4 x float> %v39, <4 x float> %v41, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v45 = shufflevector <4 x float> %v40, <4 x float> %v42, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v46 = shufflevector <4 x float> %v40, <4 x float> %v42, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v47 = mul i64 %l10.i, 4
  %v48 = mul i64 %l6.i, 4
  %v49 = add i64 %v47, %v48
  %v50 = getelementptr float, ptr %s1, i64 %v49
  store <4 x float> %v43, ptr %v50, align 4
  %v51 = add i64 %l10.i, 1
  %v52 = mul i64 %v51, 4
  %v53 = mul i64 %l6.i, 4
  %v54 = add i64 %v52, %v53
  %v55 = getelementptr float, ptr %s1, i64 %v54
  store <4 x float> %v44, ptr %v55, align 4
  %v56 = add i64 %l10.i, 2
  %v57 = mul i64 %v56, 4
  %v58 = mul i64 %l6.i, 4
  %v59 = add i64 %v57, %v58
  %v60 = getelementptr float, ptr %s1, i64 %v59
  store <4 x float> %v45, ptr %v60, align 4
  %v61 = add i64 %l10.i, 3
  %v62 = mul i64 %v61, 4
  %v63 = mul i64 %l6.i, 4
  %v64 = add i64 %v62, %v63
  %v65 = getelementptr float, ptr %s1, i64 %v64
  store <4 x float> %v46, ptr %v65, align 4
  %l10.next = add nuw nsw i64 %l10.i, 4
  %v66 = icmp slt i64 %l10.next, 4
  br i1 %v66, label %l10.body, label %l10.end
l10.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v67 = icmp slt i64 %l6.next, 1
  br i1 %v67, label %l6.body, label %l6.end
l6.end:
  store <4 x float> splat (float 0xFFF0000000000000), ptr %s4
  store <4 x float> splat (float 0x0000000000000000), ptr %s5
  %v69 = icmp slt i64 0, %size0
  br i1 %v69, label %l68.body, label %l68.end
l68.body:
  %l68.i = phi i64 [ 0, %l6.end ], [ %l68.next, %l209.end ]
  %v70 = icmp eq i64 %l68.i, 0
  %v71 = sub i64 %size0, %l68.i
  %v72 = call i64 @llvm.smin.i64(i64 %v71, i64 16)
  %v73 = load <4 x float>, ptr %s4
  %v74 = add i64 %l68.i, %v72
  %v75 = icmp eq i64 %v74, %size0
  %v77 = icmp slt i64 0, %v72
  br i1 %v77, label %l76.body, label %l76.end
l76.body:
  %l76.i = phi i64 [ 0, %l68.body ], [ %l76.next, %l76.body ]
  store <4 x float> splat (float 0x0000000000000000), ptr %s78
  %v79 = add i64 %l68.i, %l76.i
  %v80 = mul i64 %first, %size1
  %v81 = mul i64 %v79, 4
  %v82 = add i64 %v80, %v81
  %v83 = getelementptr float, ptr %p1, i64 %v82
  %v84 = getelementptr float, ptr %s1, i64 0
  %v85 = getelementptr float, ptr %v84, i64 0
  %v86 = load <4 x float>, ptr %v85, align 4
  %v87 = getelementptr float, ptr %v83, i64 0
  %v88 = getelementptr float, ptr %v87, i64 0
  %v89 = load float, ptr %v88
  %v90 = insertelement <4 x float> poison, float %v89, i32 0
  %v91 = shufflevector <4 x float> %v90, <4 x float> poison, <4 x i32> zeroinitializer
  %v92 = load <4 x float>, ptr %s78
  %v93 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v91, <4 x float> %v86, <4 x float> %v92)
  store <4 x float> %v93, ptr %s78
  call void asm sideeffect "", "~{memory}"()
  %v94 = getelementptr float, ptr %s1, i64 0
  %v95 = getelementptr float, ptr %v94, i64 4
  %v96 = load <4 x float>, ptr %v95, align 4
  %v97 = getelementptr float, ptr %v83, i64 0
  %v98 = getelementptr float, ptr %v97, i64 1
  %v99 = load float, ptr %v98
  %v100 = insertelement <4 x float> poison, float %v99, i32 0
  %v101 = shufflevector <4 x float> %v100, <4 x float> poison, <4 x i32> zeroinitializer
  %v102 = load <4 x float>, ptr %s78
  %v103 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v101, <4 x float> %v96, <4 x float> %v102)
  store <4 x float> %v103, ptr %s78
  call void asm sideeffect "", "~{memory}"()
  %v104 = getelementptr float, ptr %s1, i64 0
  %v105 = getelementptr float, ptr %v104, i64 8
  %v106 = load <4 x float>, ptr %v105, align 4
  %v107 = getelementptr float, ptr %v83, i64 0
  %v108 = getelementptr float, ptr %v107, i64 2
  %v109 = load float, ptr %v108
  %v110 = insertelement <4 x float> poison, float %v109, i32 0
  %v111 = shufflevector <4 x float> %v110, <4 x float> poison, <4 x i32> zeroinitializer
  %v112 = load <4 x float>, ptr %s78
  %v113 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v111, <4 x float> %v106, <4 x float> %v112)
  store <4 x float> %v113, ptr %s78
  call void asm sideeffect "", "~{memory}"()
  %v114 = getelementptr float, ptr %s1, i64 0
  %v115 = getelementptr float, ptr %v114, i64 12
  %v116 = load <4 x float>, ptr %v115, align 4
  %v117 = getelementptr float, ptr %v83, i64 0
  %v118 = getelementptr float, ptr %v117, i64 3
  %v119 = load float, ptr %v118
  %v120 = insertelement <4 x float> poison, float %v119, i32 0
  %v121 = shufflevector <4 x float> %v120, <4 x float> poison, <4 x i32> zeroinitializer
  %v122 = load <4 x float>, ptr %s78
  %v123 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v121, <4 x float> %v116, <4 x float> %v122)
  store <4 x float> %v123, ptr %s78
  %v124 = mul i64 %l76.i, 4
  %v125 = add i64 %l68.i, %l76.i
  %v126 = load <4 x float>, ptr %s78
  %v127 = fmul contract <4 x float> %v126, splat (float 0x3FE0000000000000)
  %v128 = load <4 x float>, ptr %s4
  %v129 = fcmp ogt <4 x float> %v127, %v128
  %v130 = select <4 x i1> %v129, <4 x float> %v127, <4 x float> %v128
  store <4 x float> %v130, ptr %s4
  %v131 = getelementptr float, ptr %s3, i64 %v124
  store <4 x float> %v127, ptr %v131, align 4
  %l76.next = add nuw nsw i64 %l76.i, 1
  %v132 = icmp slt i64 %l76.next, %v72
  br i1 %v132, label %l76.body, label %l76.end
l76.end:
  %v133 = load <4 x float>, ptr %s4
  %v134 = fcmp oeq <4 x float> %v133, splat (float 0xFFF0000000000000)
  %v135 = select <4 x i1> %v134, <4 x float> splat (float 0x0000000000000000), <4 x float> %v133
  %v136 = fsub <4 x float> %v73, %v135
  %v137 = fcmp olt <4 x float> %v136, splat (float 0xC05A000000000000)
  %v138 = select <4 x i1> %v137, <4 x float> splat (float 0x0000000000000000), <4 x float> %v136
  %v139 = fcmp ogt <4 x float> %v138, splat (float 0x4056400000000000)
  %v140 = select <4 x i1> %v139, <4 x float> splat (float 0x4056400000000000), <4 x float> %v138
  %v141 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v140, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v142 = fsub <4 x float> %v141, splat (float 0x4168000000000000)
  %v143 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v142, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v140)
  %v144 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v142, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v143)
  %v145 = fmul <4 x float> %v144, %v144
  %v146 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v144, <4 x float> splat (float 0x3F56D49200000000))
  %v147 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v146, <4 x float> %v144, <4 x float> splat (float 0x3F81110E00000000))
  %v148 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v147, <4 x float> %v144, <4 x float> splat (float 0x3FA5554E40000000))
  %v149 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v148, <4 x float> %v144, <4 x float> splat (float 0x3FC5555560000000))
  %v150 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v149, <4 x float> %v144, <4 x float> splat (float 0x3FE0000000000000))
  %v151 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v145, <4 x float> %v150, <4 x float> %v144)
  %v152 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v153 = bitcast <4 x float> %v141 to <4 x i32>
  %v154 = sub <4 x i32> %v153, %v152
  %v155 = ashr <4 x i32> %v154, splat (i32 1)
  %v156 = fadd <4 x float> %v151, splat (float 0x3FF0000000000000)
  %v157 = add <4 x i32> %v155, splat (i32 127)
  %v158 = shl <4 x i32> %v157, splat (i32 23)
  %v159 = bitcast <4 x i32> %v158 to <4 x float>
  %v160 = fmul <4 x float> %v156, %v159
  %v161 = sub <4 x i32> %v154, %v155
  %v162 = add <4 x i32> %v161, splat (i32 127)
  %v163 = shl <4 x i32> %v162, splat (i32 23)
  %v164 = bitcast <4 x i32> %v163 to <4 x float>
  %v165 = fmul <4 x float> %v160, %v164
  %v166 = select <4 x i1> %v137, <4 x float> splat (float 0x0000000000000000), <4 x float> %v165
  %v167 = load <4 x float>, ptr %s5
  %v168 = fmul <4 x float> %v167, %v166
  store <4 x float> %v168, ptr %s5
  %v170 = icmp slt i64 0, %v72
  br i1 %v170, label %l169.body, label %l169.end
l169.body:
  %l169.i = phi i64 [ 0, %l76.end ], [ %l169.next, %l169.body ]
  %v171 = mul i64 %l169.i, 4
  %v172 = getelementptr float, ptr %s3, i64 %v171
  %v173 = load <4 x float>, ptr %v172, align 4
  %v174 = fsub <4 x float> %v173, %v135
  %v175 = fcmp olt <4 x float> %v174, splat (float 0xC05A000000000000)
  %v176 = select <4 x i1> %v175, <4 x float> splat (float 0x0000000000000000), <4 x float> %v174
  %v177 = fcmp ogt <4 x float> %v176, splat (float 0x4056400000000000)
  %v178 = select <4 x i1> %v177, <4 x float> splat (float 0x4056400000000000), <4 x float> %v176
  %v179 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v178, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v180 = fsub <4 x float> %v179, splat (float 0x4168000000000000)
  %v181 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v180, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v178)
  %v182 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v180, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v181)
  %v183 = fmul <4 x float> %v182, %v182
  %v184 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v182, <4 x float> splat (float 0x3F56D49200000000))
  %v185 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v184, <4 x float> %v182, <4 x float> splat (float 0x3F81110E00000000))
  %v186 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v185, <4 x float> %v182, <4 x float> splat (float 0x3FA5554E40000000))
  %v187 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v186, <4 x float> %v182, <4 x float> splat (float 0x3FC5555560000000))
  %v188 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v187, <4 x float> %v182, <4 x float> splat (float 0x3FE0000000000000))
  %v189 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v183, <4 x float> %v188, <4 x float> %v182)
  %v190 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v191 = bitcast <4 x float> %v179 to <4 x i32>
  %v192 = sub <4 x i32> %v191, %v190
  %v193 = ashr <4 x i32> %v192, splat (i32 1)
  %v194 = fadd <4 x float> %v189, splat (float 0x3FF0000000000000)
  %v195 = add <4 x i32> %v193, splat (i32 127)
  %v196 = shl <4 x i32> %v195, splat (i32 23)
  %v197 = bitcast <4 x i32> %v196 to <4 x float>
  %v198 = fmul <4 x float> %v194, %v197
  %v199 = sub <4 x i32> %v192, %v193
  %v200 = add <4 x i32> %v199, splat (i32 127)
  %v201 = shl <4 x i32> %v200, splat (i32 23)
  %v202 = bitcast <4 x i32> %v201 to <4 x float>
  %v203 = fmul <4 x float> %v198, %v202
  %v204 = select <4 x i1> %v175, <4 x float> splat (float 0x0000000000000000), <4 x float> %v203
  %v205 = getelementptr float, ptr %s3, i64 %v171
  store <4 x float> %v204, ptr %v205, align 4
  %v206 = load <4 x float>, ptr %s5
  %v207 = fadd <4 x float> %v206, %v204
  store <4 x float> %v207, ptr %s5
  %l169.next = add nuw nsw i64 %l169.i, 1
  %v208 = icmp slt i64 %l169.next, %v72
  br i1 %v208, label %l169.body, label %l169.end
l169.end:
  %v210 = icmp slt i64 0, 4
  br i1 %v210, label %l209.body, label %l209.end
l209.body:
  %l209.i = phi i64 [ 0, %l169.end ], [ %l209.next, %l276.end ]
  %v212 = mul i64 %l209.i, 4
  store <4 x float> splat (float 0x0000000000000000), ptr %s211
  %v213 = xor i1 %v70, true
  br i1 %v213, label %w214.then, label %w214.end
w214.then:
  %v215 = getelementptr float, ptr %s2, i64 %v212
  %v216 = load <4 x float>, ptr %v215, align 4
  %v217 = fmul <4 x float> %v216, %v166
  store <4 x float> %v217, ptr %s211
  br label %w214.end
w214.end:
  %v218 = mul i64 %first, %size1
  %v219 = mul i64 %l68.i, 4
  %v220 = add i64 %v218, %v219
  %v221 = getelementptr float, ptr %p2, i64 %v220
  %v222 = getelementptr float, ptr %v221, i64 %l209.i
  %v223 = urem i64 %v72, 4
  %v224 = sub i64 %v72, %v223
  %v226 = icmp slt i64 0, %v224
  br i1 %v226, label %l225.body, label %l225.end
l225.body:
  %l225.i = phi i64 [ 0, %w214.end ], [ %l225.next, %l225.body ]
  %v227 = mul i64 %l225.i, 4
  %v228 = getelementptr float, ptr %s3, i64 %v227
  %v229 = getelementptr float, ptr %v228, i64 0
  %v230 = load <4 x float>, ptr %v229, align 4
  %v231 = mul i64 %l225.i, 4
  %v232 = getelementptr float, ptr %v222, i64 %v231
  %v233 = getelementptr float, ptr %v232, i64 0
  %v234 = load float, ptr %v233
  %v235 = insertelement <4 x float> poison, float %v234, i32 0
  %v236 = shufflevector <4 x float> %v235, <4 x float> poison, <4 x i32> zeroinitializer
  %v237 = load <4 x float>, ptr %s211
  %v238 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v236, <4 x float> %v230, <4 x float> %v237)
  store <4 x float> %v238, ptr %s211
  call void asm sideeffect "", "~{memory}"()
  %v239 = mul i64 %l225.i, 4
  %v240 = getelementptr float, ptr %s3, i64 %v239
  %v241 = getelementptr float, ptr %v240, i64 4
  %v242 = load <4 x float>, ptr %v241, align 4
  %v243 = mul i64 %l225.i, 4
  %v244 = getelementptr float, ptr %v222, i64 %v243
  %v245 = getelementptr float, ptr %v244, i64 4
  %v246 = load float, ptr %v245
  %v247 = insertelement <4 x float> poison, float %v246, i32 0
  %v248 = shufflevector <4 x float> %v247, <4 x float> poison, <4 x i32> zeroinitializer
  %v249 = load <4 x float>, ptr %s211
  %v250 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v248, <4 x float> %v242, <4 x float> %v249)
  store <4 x float> %v250, ptr %s211
  call void asm sideeffect "", "~{memory}"()
  %v251 = mul i64 %l225.i, 4
  %v252 = getelementptr float, ptr %s3, i64 %v251
  %v253 = getelementptr float, ptr %v252, i64 8
  %v254 = load <4 x float>, ptr %v253, align 4
  %v255 = mul i64 %l225.i, 4
  %v256 = getelementptr float, ptr %v222, i64 %v255
  %v257 = getelementptr float, ptr %v256, i64 8
  %v258 = load float, ptr %v257
  %v259 = insertelement <4 x float> poison, float %v258, i32 0
  %v260 = shufflevector <4 x float> %v259, <4 x float> poison, <4 x i32> zeroinitializer
  %v261 = load <4 x float>, ptr %s211
  %v262 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v260, <4 x float> %v254, <4 x float> %v261)
  store <4 x float> %v262, ptr %s211
  call void asm sideeffect "", "~{memory}"()
  %v263 = mul i64 %l225.i, 4
  %v264 = getelementptr float, ptr %s3, i64 %v263
  %v265 = getelementptr float, ptr %v264, i64 12
  %v266 = load <4 x float>, ptr %v265, align 4
  %v267 = mul i64 %l225.i, 4
  %v268 = getelementptr float, ptr %v222, i64 %v267
  %v269 = getelementptr float, ptr %v268, i64 12
  %v270 = load float, ptr %v269
  %v271 = insertelement <4 x float> poison, float %v270, i32 0
  %v272 = shufflevector <4 x float> %v271, <4 x float> poison, <4 x i32> zeroinitializer
  %v273 = load <4 x float>, ptr %s211
  %v274 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v272, <4 x float> %v266, <4 x float> %v273)
  store <4 x float> %v274, ptr %s211
  %l225.next = add nuw nsw i64 %l225.i, 4
  %v275 = icmp slt i64 %l225.next, %v224
  br i1 %v275, label %l225.body, label %l225.end
l225.end:
  %v277 = icmp slt i64 %v224, %v72
  br i1 %v277, label %l276.body, label %l276.end
l276.body:
  %l276.i = phi i64 [ %v224, %l225.end ], [ %l276.next, %l276.body ]
  %v278 = mul i64 %l276.i, 4
  %v279 = getelementptr float, ptr %s3, i64 %v278
  %v280 = getelementptr float, ptr %v279, i64 0
  %v281 = load <4 x float>, ptr %v280, align 4
  %v282 = mul i64 %l276.i, 4
  %v283 = getelementptr float, ptr %v222, i64 %v282
  %v284 = getelementptr float, ptr %v283, i64 0
  %v285 = load float, ptr %v284
  %v286 = insertelement <4 x float> poison, float %v285, i32 0
  %v287 = shufflevector <4 x float> %v286, <4 x float> poison, <4 x i32> zeroinitializer
  %v288 = load <4 x float>, ptr %s211
  %v289 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v287, <4 x float> %v281, <4 x float> %v288)
  store <4 x float> %v289, ptr %s211
  %l276.next = add nuw nsw i64 %l276.i, 1
  %v290 = icmp slt i64 %l276.next, %v72
  br i1 %v290, label %l276.body, label %l276.end
l276.end:
  %v291 = load <4 x float>, ptr %s211
  %v292 = getelementptr float, ptr %s2, i64 %v212
  store <4 x float> %v291, ptr %v292, align 4
  %l209.next = add nuw nsw i64 %l209.i, 1
  %v293 = icmp slt i64 %l209.next, 4
  br i1 %v293, label %l209.body, label %l209.end
l209.end:
  %l68.next = add nuw nsw i64 %l68.i, 16
  %v294 = icmp slt i64 %l68.next, %size0
  br i1 %v294, label %l68.body, label %l68.end
l68.end:
  %v295 = load <4 x float>, ptr %s5
  %v296 = fdiv <4 x float> splat (float 0x3FF0000000000000), %v295
  %v298 = icmp slt i64 0, 4
  br i1 %v298, label %l297.body, label %l297.end
l297.body:
  %l297.i = phi i64 [ 0, %l68.end ], [ %l297.next, %l297.body ]
  %v299 = mul i64 %l297.i, 4
  %v300 = add i64 %l297.i, 1
  %v301 = mul i64 %v300, 4
  %v302 = add i64 %l297.i, 2
  %v303 = mul i64 %v302, 4
  %v304 = add i64 %l297.i, 3
  %v305 = mul i64 %v304, 4
  %v306 = getelementptr float, ptr %s2, i64 %v299
  %v307 = load <4 x float>, ptr %v306, align 4
  %v308 = fmul <4 x float> %v307, %v296
  %v309 = getelementptr float, ptr %s2, i64 %v301
  %v310 = load <4 x float>, ptr %v309, align 4
  %v311 = fmul <4 x float> %v310, %v296
  %v312 = getelementptr float, ptr %s2, i64 %v303
  %v313 = load <4 x float>, ptr %v312, align 4
  %v314 = fmul <4 x float> %v313, %v296
  %v315 = getelementptr float, ptr %s2, i64 %v305
  %v316 = load <4 x float>, ptr %v315, align 4
  %v317 = fmul <4 x float> %v316, %v296
  %v318 = shufflevector <4 x float> %v308, <4 x float> %v314, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v319 = shufflevector <4 x float> %v308, <4 x float> %v314, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v320 = shufflevector <4 x float> %v311, <4 x float> %v317, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v321 = shufflevector <4 x float> %v311, <4 x float> %v317, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v322 = shufflevector <4 x float> %v318, <4 x float> %v320, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v323 = shufflevector <4 x float> %v318, <4 x float> %v320, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v324 = shufflevector <4 x float> %v319, <4 x float> %v321, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v325 = shufflevector <4 x float> %v319, <4 x float> %v321, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v326 = getelementptr float, ptr %s3, i64 %l297.i
  store <4 x float> %v322, ptr %v326, align 4
  %v327 = add i64 %l297.i, 4
  %v328 = getelementptr float, ptr %s3, i64 %v327
  store <4 x float> %v323, ptr %v328, align 4
  %v329 = add i64 %l297.i, 8
  %v330 = getelementptr float, ptr %s3, i64 %v329
  store <4 x float> %v324, ptr %v330, align 4
  %v331 = add i64 %l297.i, 12
  %v332 = getelementptr float, ptr %s3, i64 %v331
  store <4 x float> %v325, ptr %v332, align 4
  %l297.next = add nuw nsw i64 %l297.i, 4
  %v333 = icmp slt i64 %l297.next, 4
  br i1 %v333, label %l297.body, label %l297.end
l297.end:
  %v335 = icmp slt i64 0, 4
  br i1 %v335, label %l334.body, label %l334.end
l334.body:
  %l334.i = phi i64 [ 0, %l297.end ], [ %l334.next, %l336.end ]
  %v337 = icmp slt i64 0, 4
  br i1 %v337, label %l336.body, label %l336.end
l336.body:
  %l336.i = phi i64 [ 0, %l334.body ], [ %l336.next, %l336.body ]
  %v338 = mul i64 %l334.i, 4
  %v339 = add i64 %v338, %l336.i
  %v340 = getelementptr float, ptr %s3, i64 %v339
  %v341 = load <4 x float>, ptr %v340, align 4
  %v342 = add i64 %last, %l334.i
  %v343 = mul i64 %first, 16
  %v344 = mul i64 %v342, 4
  %v345 = add i64 %v343, %v344
  %v346 = add i64 %v345, %l336.i
  %v347 = getelementptr float, ptr %p3, i64 %v346
  store <4 x float> %v341, ptr %v347, align 4
  %l336.next = add nuw nsw i64 %l336.i, 4
  %v348 = icmp slt i64 %l336.next, 4
  br i1 %v348, label %l336.body, label %l336.end
l336.end:
  %l334.next = add nuw nsw i64 %l334.i, 1
  %v349 = icmp slt i64 %l334.next, 4
  br i1 %v349, label %l334.body, label %l334.end
l334.end:
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %w6.end ]
  %v3 = call i64 @llvm.smin.i64(i64 0, i64 0)
  %v4 = mul i64 %v3, 4
  %v5 = icmp sge i64 0, 0
  br i1 %v5, label %w6.then, label %w6.end
w6.then:
  call void @k.1(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %l1.i, i64 %v4)
  br label %w6.end
w6.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v7 = icmp slt i64 %l1.next, %last
  br i1 %v7, label %l1.body, label %l1.end
l1.end:
  ret void
}
