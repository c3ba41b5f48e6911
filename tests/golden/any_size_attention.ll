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
  %s47 = alloca <4 x float>
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %s162 = alloca <4 x float>
  %v6 = mul i64 %first, 16
  %v7 = mul i64 %last, 4
  %v8 = add i64 %v6, %v7
  %v9 = getelementptr float, ptr %p0, i64 %v8
  %v10 = load <4 x float>, ptr %v9, align 4
  %v11 = add i64 %last, 1
  %v12 = mul i64 %v11, 4
  %v13 = add i64 %v6, %v12
  %v14 = getelementptr float, ptr %p0, i64 %v13
  %v15 = load <4 x float>, ptr %v14, align 4
  %v16 = add i64 %last, 2
  %v17 = mul i64 %v16, 4
  %v18 = add i64 %v6, %v17
  %v19 = getelementptr float, ptr %p0, i64 %v18
  %v20 = load <4 x float>, ptr %v19, align 4
  %v21 = add i64 %last, 3
  %v22 = mul i64 %v21, 4
  %v23 = add i64 %v6, %v22
  %v24 = getelementptr float, ptr %p0, i64 %v23
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = shufflevector <4 x float> %v10, <4 x float> %v20, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v27 = shufflevector <4 x float> %v10, <4 x float> %v20, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v28 = shufflevector <4 x float> %v15, <4 x float> %v25, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v29 = shufflevector <4 x float> %v15, <4 x float> %v25, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v30 = shufflevector <4 x float> %v26, <4 x float> %v28, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v31 = shufflevector <4 x float> %v26, <4 x float> %v28, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v32 = shufflevector <4 x float> %v27, <4 x float> %v29, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v33 = shufflevector <4 x float> %v27, <4 x float> %v29, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  store <4 x float> %v30, ptr %s1, align 4
  %v34 = getelementptr float, ptr %s1, i64 4
  store <4 x float> %v31, ptr %v34, align 4
  %v35 = getelementptr float, ptr %s1, i64 8
  store <4 x float> %v32, ptr %v35, align 4
  %v36 = getelementptr float, ptr %s1, i64 12
  store <4 x float> %v33, ptr %v36, align 4
  store <4 x float> splat (float 0xFFF0000000000000), ptr %s4
  store <4 x float> splat (float 0x0000000000000000), ptr %s5
  %v37 = icmp slt i64 0, %size0
  br i1 %v37, label %l38.body, label %l38.end
l38.body:
  %l38.i = phi i64 [ 0, %entry ], [ %l38.next, %l161.end ]
  %v39 = icmp eq i64 %l38.i, 0
  %v40 = sub i64 %size0, %l38.i
  %v41 = call i64 @llvm.smin.i64(i64 %v40, i64 16)
  %v42 = load <4 x float>, ptr %s4
  %v43 = add i64 %l38.i, %v41
  %v44 = icmp eq i64 %v43, %size0
  %v45 = icmp slt i64 0, %v41
  br i1 %v45, label %l46.body, label %l46.end
l46.body:
  %l46.i = phi i64 [ 0, %l38.body ], [ %l46.next, %l46.body ]
  store <4 x float> splat (float 0x0000000000000000), ptr %s47
  %v48 = add i64 %l38.i, %l46.i
  %v49 = mul i64 %first, %size1
  %v50 = mul i64 %v48, 4
  %v51 = add i64 %v49, %v50
  %v52 = getelementptr float, ptr %p1, i64 %v51
  %v53 = load <4 x float>, ptr %s1, align 4
  %v54 = load float, ptr %v52
  %v55 = insertelement <4 x float> poison, float %v54, i32 0
  %v56 = shufflevector <4 x float> %v55, <4 x float> poison, <4 x i32> zeroinitializer
  %v57 = load <4 x float>, ptr %s47
  %v58 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v56, <4 x float> %v53, <4 x float> %v57)
  store <4 x float> %v58, ptr %s47
  call void asm sideeffect "", "~{memory}"()
  %v59 = load <4 x float>, ptr %v34, align 4
  %v60 = getelementptr float, ptr %v52, i64 1
  %v61 = load float, ptr %v60
  %v62 = insertelement <4 x float> poison, float %v61, i32 0
  %v63 = shufflevector <4 x float> %v62, <4 x float> poison, <4 x i32> zeroinitializer
  %v64 = load <4 x float>, ptr %s47
  %v65 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v63, <4 x float> %v59, <4 x float> %v64)
  store <4 x float> %v65, ptr %s47
  call void asm sideeffect "", "~{memory}"()
  %v66 = load <4 x float>, ptr %v35, align 4
  %v67 = getelementptr float, ptr %v52, i64 2
  %v68 = load float, ptr %v67
  %v69 = insertelement <4 x float> poison, float %v68, i32 0
  %v70 = shufflevector <4 x float> %v69, <4 x float> poison, <4 x i32> zeroinitializer
  %v71 = load <4 x float>, ptr %s47
  %v72 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v70, <4 x float> %v66, <4 x float> %v71)
  store <4 x float> %v72, ptr %s47
  call void asm sideeffect "", "~{memory}"()
  %v73 = load <4 x float>, ptr %v36, align 4
  %v74 = getelementptr float, ptr %v52, i64 3
  %v75 = load float, ptr %v74
  %v76 = insertelement <4 x float> poison, float %v75, i32 0
  %v77 = shufflevector <4 x float> %v76, <4 x float> poison, <4 x i32> zeroinitializer
  %v78 = load <4 x float>, ptr %s47
  %v79 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v77, <4 x float> %v73, <4 x float> %v78)
  store <4 x float> %v79, ptr %s47
  %v80 = mul i64 %l46.i, 4
  %v81 = load <4 x float>, ptr %s47
  %v82 = fmul contract <4 x float> %v81, splat (float 0x3FE0000000000000)
  %v83 = load <4 x float>, ptr %s4
  %v84 = fcmp ogt <4 x float> %v82, %v83
  %v85 = select <4 x i1> %v84, <4 x float> %v82, <4 x float> %v83
  store <4 x float> %v85, ptr %s4
  %v86 = getelementptr float, ptr %s3, i64 %v80
  store <4 x float> %v82, ptr %v86, align 4
  %l46.next = add nuw nsw i64 %l46.i, 1
  %v87 = icmp slt i64 %l46.next, %v41
  br i1 %v87, label %l46.body, label %l46.end
l46.end:
  %v88 = load <4 x float>, ptr %s4
  %v89 = fcmp oeq <4 x float> %v88, splat (float 0xFFF0000000000000)
  %v90 = select <4 x i1> %v89, <4 x float> splat (float 0x0000000000000000), <4 x float> %v88
  %v91 = fsub <4 x float> %v42, %v90
  %v92 = fcmp olt <4 x float> %v91, splat (float 0xC05A000000000000)
  %v93 = select <4 x i1> %v92, <4 x float> splat (float 0x0000000000000000), <4 x float> %v91
  %v94 = fcmp ogt <4 x float> %v93, splat (float 0x4056400000000000)
  %v95 = select <4 x i1> %v94, <4 x float> splat (float 0x4056400000000000), <4 x float> %v93
  %v96 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v95, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v97 = fsub <4 x float> %v96, splat (float 0x4168000000000000)
  %v98 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v97, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v95)
  %v99 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v97, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v98)
  %v100 = fmul <4 x float> %v99, %v99
  %v101 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v99, <4 x float> splat (float 0x3F56D49200000000))
  %v102 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v101, <4 x float> %v99, <4 x float> splat (float 0x3F81110E00000000))
  %v103 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v102, <4 x float> %v99, <4 x float> splat (float 0x3FA5554E40000000))
  %v104 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v103, <4 x float> %v99, <4 x float> splat (float 0x3FC5555560000000))
  %v105 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v104, <4 x float> %v99, <4 x float> splat (float 0x3FE0000000000000))
  %v106 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v100, <4 x float> %v105, <4 x float> %v99)
  %v107 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v108 = bitcast <4 x float> %v96 to <4 x i32>
  %v109 = sub <4 x i32> %v108, %v107
  %v110 = ashr <4 x i32> %v109, splat (i32 1)
  %v111 = fadd <4 x float> %v106, splat (float 0x3FF0000000000000)
  %v112 = add <4 x i32> %v110, splat (i32 127)
  %v113 = shl <4 x i32> %v112, splat (i32 23)
  %v114 = bitcast <4 x i32> %v113 to <4 x float>
  %v115 = fmul <4 x float> %v111, %v114
  %v116 = sub <4 x i32> %v109, %v110
  %v117 = add <4 x i32> %v116, splat (i32 127)
  %v118 = shl <4 x i32> %v117, splat (i32 23)
  %v119 = bitcast <4 x i32> %v118 to <4 x float>
  %v120 = fmul <4 x float> %v115, %v119
  %v121 = select <4 x i1> %v92, <4 x float> splat (float 0x0000000000000000), <4 x float> %v120
  %v122 = load <4 x float>, ptr %s5
  %v123 = fmul <4 x float> %v122, %v121
  store <4 x float> %v123, ptr %s5
  br i1 %v45, label %l124.body, label %l124.end
l124.body:
  %l124.i = phi i64 [ 0, %l46.end ], [ %l124.next, %l124.body ]
  %v125 = mul i64 %l124.i, 4
  %v126 = getelementptr float, ptr %s3, i64 %v125
  %v127 = load <4 x float>, ptr %v126, align 4
  %v128 = fsub <4 x float> %v127, %v90
  %v129 = fcmp olt <4 x float> %v128, splat (float 0xC05A000000000000)
  %v130 = select <4 x i1> %v129, <4 x float> splat (float 0x0000000000000000), <4 x float> %v128
  %v131 = fcmp ogt <4 x float> %v130, splat (float 0x4056400000000000)
  %v132 = select <4 x i1> %v131, <4 x float> splat (float 0x4056400000000000), <4 x float> %v130
  %v133 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v132, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v134 = fsub <4 x float> %v133, splat (float 0x4168000000000000)
  %v135 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v134, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v132)
  %v136 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v134, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v135)
  %v137 = fmul <4 x float> %v136, %v136
  %v138 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v136, <4 x float> splat (float 0x3F56D49200000000))
  %v139 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v138, <4 x float> %v136, <4 x float> splat (float 0x3F81110E00000000))
  %v140 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v139, <4 x float> %v136, <4 x float> splat (float 0x3FA5554E40000000))
  %v141 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v140, <4 x float> %v136, <4 x float> splat (float 0x3FC5555560000000))
  %v142 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v141, <4 x float> %v136, <4 x float> splat (float 0x3FE0000000000000))
  %v143 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v137, <4 x float> %v142, <4 x float> %v136)
  %v144 = bitcast <4 x float> %v133 to <4 x i32>
  %v145 = sub <4 x i32> %v144, %v107
  %v146 = ashr <4 x i32> %v145, splat (i32 1)
  %v147 = fadd <4 x float> %v143, splat (float 0x3FF0000000000000)
  %v148 = add <4 x i32> %v146, splat (i32 127)
  %v149 = shl <4 x i32> %v148, splat (i32 23)
  %v150 = bitcast <4 x i32> %v149 to <4 x float>
  %v151 = fmul <4 x float> %v147, %v150
  %v152 = sub <4 x i32> %v145, %v146
  %v153 = add <4 x i32> %v152, splat (i32 127)
  %v154 = shl <4 x i32> %v153, splat (i32 23)
  %v155 = bitcast <4 x i32> %v154 to <4 x float>
  %v156 = fmul <4 x float> %v151, %v155
  %v157 = select <4 x i1> %v129, <4 x float> splat (float 0x0000000000000000), <4 x float> %v156
  store <4 x float> %v157, ptr %v126, align 4
  %v158 = load <4 x float>, ptr %s5
  %v159 = fadd <4 x float> %v158, %v157
  store <4 x float> %v159, ptr %s5
  %l124.next = add nuw nsw i64 %l124.i, 1
  %v160 = icmp slt i64 %l124.next, %v41
  br i1 %v160, label %l124.body, label %l124.end
l124.end:
  br i1 true, label %l161.body, label %l161.end
l161.body:
  %l161.i = phi i64 [ 0, %l124.end ], [ %l161.next, %l213.end ]
  %v163 = mul i64 %l161.i, 4
  store <4 x float> splat (float 0x0000000000000000), ptr %s162
  %v164 = xor i1 %v39, true
  br i1 %v164, label %w165.then, label %w165.end
w165.then:
  %v166 = getelementptr float, ptr %s2, i64 %v163
  %v167 = load <4 x float>, ptr %v166, align 4
  %v168 = fmul <4 x float> %v167, %v121
  store <4 x float> %v168, ptr %s162
  br label %w165.end
w165.end:
  %v169 = mul i64 %first, %size1
  %v170 = mul i64 %l38.i, 4
  %v171 = add i64 %v169, %v170
  %v172 = getelementptr float, ptr %p2, i64 %v171
  %v173 = getelementptr float, ptr %v172, i64 %l161.i
  %v174 = urem i64 %v41, 4
  %v175 = sub i64 %v41, %v174
  %v176 = icmp slt i64 0, %v175
  br i1 %v176, label %l177.body, label %l177.end
l177.body:
  %l177.i = phi i64 [ 0, %w165.end ], [ %l177.next, %l177.body ]
  %v178 = mul i64 %l177.i, 4
  %v179 = getelementptr float, ptr %s3, i64 %v178
  %v180 = load <4 x float>, ptr %v179, align 4
  %v181 = getelementptr float, ptr %v173, i64 %v178
  %v182 = load float, ptr %v181
  %v183 = insertelement <4 x float> poison, float %v182, i32 0
  %v184 = shufflevector <4 x float> %v183, <4 x float> poison, <4 x i32> zeroinitializer
  %v185 = load <4 x float>, ptr %s162
  %v186 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v184, <4 x float> %v180, <4 x float> %v185)
  store <4 x float> %v186, ptr %s162
  call void asm sideeffect "", "~{memory}"()
  %v187 = getelementptr float, ptr %v179, i64 4
  %v188 = load <4 x float>, ptr %v187, align 4
  %v189 = getelementptr float, ptr %v181, i64 4
  %v190 = load float, ptr %v189
  %v191 = insertelement <4 x float> poison, float %v190, i32 0
  %v192 = shufflevector <4 x float> %v191, <4 x float> poison, <4 x i32> zeroinitializer
  %v193 = load <4 x float>, ptr %s162
  %v194 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v192, <4 x float> %v188, <4 x float> %v193)
  store <4 x float> %v194, ptr %s162
  call void asm sideeffect "", "~{memory}"()
  %v195 = getelementptr float, ptr %v179, i64 8
  %v196 = load <4 x float>, ptr %v195, align 4
  %v197 = getelementptr float, ptr %v181, i64 8
  %v198 = load float, ptr %v197
  %v199 = insertelement <4 x float> poison, float %v198, i32 0
  %v200 = shufflevector <4 x float> %v199, <4 x float> poison, <4 x i32> zeroinitializer
  %v201 = load <4 x float>, ptr %s162
  %v202 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v200, <4 x float> %v196, <4 x float> %v201)
  store <4 x float> %v202, ptr %s162
  call void asm sideeffect "", "~{memory}"()
  %v203 = getelementptr float, ptr %v179, i64 12
  %v204 = load <4 x float>, ptr %v203, align 4
  %v205 = getelementptr float, ptr %v181, i64 12
  %v206 = load float, ptr %v205
  %v207 = insertelement <4 x float> poison, float %v206, i32 0
  %v208 = shufflevector <4 x float> %v207, <4 x float> poison, <4 x i32> zeroinitializer
  %v209 = load <4 x float>, ptr %s162
  %v210 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v208, <4 x float> %v204, <4 x float> %v209)
  store <4 x float> %v210, ptr %s162
  %l177.next = add nuw nsw i64 %l177.i, 4
  %v211 = icmp slt i64 %l177.next, %v175
  br i1 %v211, label %l177.body, label %l177.end
l177.end:
  %v212 = icmp slt i64 %v175, %v41
  br i1 %v212, label %l213.body, label %l213.end
l213.body:
  %l213.i = phi i64 [ %v175, %l177.end ], [ %l213.next, %l213.body ]
  %v214 = mul i64 %l213.i, 4
  %v215 = getelementptr float, ptr %s3, i64 %v214
  %v216 = load <4 x float>, ptr %v215, align 4
  %v217 = getelementptr float, ptr %v173, i64 %v214
  %v218 = load float, ptr %v217
  %v219 = insertelement <4 x float> poison, float %v218, i32 0
  %v220 = shufflevector <4 x float> %v219, <4 x float> poison, <4 x i32> zeroinitializer
  %v221 = load <4 x float>, ptr %s162
  %v222 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v220, <4 x float> %v216, <4 x float> %v221)
  store <4 x float> %v222, ptr %s162
  %l213.next = add nuw nsw i64 %l213.i, 1
  %v223 = icmp slt i64 %l213.next, %v41
  br i1 %v223, label %l213.body, label %l213.end
l213.end:
  %v224 = load <4 x float>, ptr %s162
  %v225 = getelementptr float, ptr %s2, i64 %v163
  store <4 x float> %v224, ptr %v225, align 4
  %l161.next = add nuw nsw i64 %l161.i, 1
  %v226 = icmp slt i64 %l161.next, 4
  br i1 %v226, label %l161.body, label %l161.end
l161.end:
  %l38.next = add nuw nsw i64 %l38.i, 16
  %v227 = icmp slt i64 %l38.next, %size0
  br i1 %v227, label %l38.body, label %l38.end
l38.end:
  %v228 = load <4 x float>, ptr %s5
  %v229 = fdiv <4 x float> splat (float 0x3FF0000000000000), %v228
  %v230 = load <4 x float>, ptr %s2, align 4
  %v231 = fmul <4 x float> %v230, %v229
  %v232 = getelementptr float, ptr %s2, i64 4
  %v233 = load <4 x float>, ptr %v232, align 4
  %v234 = fmul <4 x float> %v233, %v229
  %v235 = getelementptr float, ptr %s2, i64 8
  %v236 = load <4 x float>, ptr %v235, align 4
  %v237 = fmul <4 x float> %v236, %v229
  %v238 = getelementptr float, ptr %s2, i64 12
  %v239 = load <4 x float>, ptr %v238, align 4
  %v240 = fmul <4 x float> %v239, %v229
  %v241 = shufflevector <4 x float> %v231, <4 x float> %v237, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v242 = shufflevector <4 x float> %v231, <4 x float> %v237, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v243 = shufflevector <4 x float> %v234, <4 x float> %v240, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v244 = shufflevector <4 x float> %v234, <4 x float> %v240, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v245 = shufflevector <4 x float> %v241, <4 x float> %v243, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v246 = shufflevector <4 x float> %v241, <4 x float> %v243, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v247 = shufflevector <4 x float> %v242, <4 x float> %v244, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v248 = shufflevector <4 x float> %v242, <4 x float> %v244, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  store <4 x float> %v245, ptr %s3, align 4
  %v249 = getelementptr float, ptr %s3, i64 4
  store <4 x float> %v246, ptr %v249, align 4
  %v250 = getelementptr float, ptr %s3, i64 8
  store <4 x float> %v247, ptr %v250, align 4
  %v251 = getelementptr float, ptr %s3, i64 12
  store <4 x float> %v248, ptr %v251, align 4
  br i1 true, label %l252.body, label %l252.end
l252.body:
  %l252.i = phi i64 [ 0, %l38.end ], [ %l252.next, %l252.body ]
  %v253 = mul i64 %l252.i, 4
  %v254 = getelementptr float, ptr %s3, i64 %v253
  %v255 = load <4 x float>, ptr %v254, align 4
  %v256 = add i64 %last, %l252.i
  %v257 = mul i64 %v256, 4
  %v258 = add i64 %v6, %v257
  %v259 = getelementptr float, ptr %p3, i64 %v258
  store <4 x float> %v255, ptr %v259, align 4
  %l252.next = add nuw nsw i64 %l252.i, 1
  %v260 = icmp slt i64 %l252.next, 4
  br i1 %v260, label %l252.body, label %l252.end
l252.end:
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %v1 = icmp slt i64 %first, %last
  br i1 %v1, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %w4.end ]
  %v3 = icmp sge i64 0, 0
  br i1 %v3, label %w4.then, label %w4.end
w4.then:
  call void @k.1(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %l2.i, i64 0)
  br label %w4.end
w4.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v5 = icmp slt i64 %l2.next, %last
  br i1 %v5, label %l2.body, label %l2.end
l2.end:
  ret void
}
