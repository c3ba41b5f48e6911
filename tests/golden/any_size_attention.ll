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
  %s135 = alloca <4 x float>
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
  %l38.i = phi i64 [ 0, %entry ], [ %l38.next, %l134.end ]
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
  %v92 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v91, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %v93 = fsub <4 x float> %v92, splat (float 0x4168000FE0000000)
  %v94 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v93, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v91)
  %v95 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v93, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v94)
  %v96 = bitcast <4 x float> %v92 to <4 x i32>
  %v97 = shl <4 x i32> %v96, splat (i32 23)
  %v98 = bitcast <4 x i32> %v97 to <4 x float>
  %v99 = fcmp uge <4 x float> %v91, splat (float 0xC055D58A00000000)
  %v100 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F56D10FC0000000), <4 x float> %v95, <4 x float> splat (float 0x3F8120B620000000))
  %v101 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v100, <4 x float> %v95, <4 x float> splat (float 0x3FA55551A0000000))
  %v102 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v101, <4 x float> %v95, <4 x float> splat (float 0x3FC5554DE0000000))
  %v103 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v102, <4 x float> %v95, <4 x float> splat (float 0x3FE0000000000000))
  %v104 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v103, <4 x float> %v95, <4 x float> splat (float 0x3FF0000000000000))
  %v105 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v104, <4 x float> %v95, <4 x float> splat (float 0x3FF0000000000000))
  %v106 = fmul <4 x float> %v105, %v98
  %v107 = select <4 x i1> %v99, <4 x float> %v106, <4 x float> splat (float 0x0000000000000000)
  %v108 = load <4 x float>, ptr %s5
  %v109 = fmul <4 x float> %v108, %v107
  store <4 x float> %v109, ptr %s5
  br i1 %v45, label %l110.body, label %l110.end
l110.body:
  %l110.i = phi i64 [ 0, %l46.end ], [ %l110.next, %l110.body ]
  %v111 = mul i64 %l110.i, 4
  %v112 = getelementptr float, ptr %s3, i64 %v111
  %v113 = load <4 x float>, ptr %v112, align 4
  %v114 = fsub <4 x float> %v113, %v90
  %v115 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v114, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %v116 = fsub <4 x float> %v115, splat (float 0x4168000FE0000000)
  %v117 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v116, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v114)
  %v118 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v116, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v117)
  %v119 = bitcast <4 x float> %v115 to <4 x i32>
  %v120 = shl <4 x i32> %v119, splat (i32 23)
  %v121 = bitcast <4 x i32> %v120 to <4 x float>
  %v122 = fcmp uge <4 x float> %v114, splat (float 0xC055D58A00000000)
  %v123 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F56D10FC0000000), <4 x float> %v118, <4 x float> splat (float 0x3F8120B620000000))
  %v124 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v123, <4 x float> %v118, <4 x float> splat (float 0x3FA55551A0000000))
  %v125 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v124, <4 x float> %v118, <4 x float> splat (float 0x3FC5554DE0000000))
  %v126 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v125, <4 x float> %v118, <4 x float> splat (float 0x3FE0000000000000))
  %v127 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v126, <4 x float> %v118, <4 x float> splat (float 0x3FF0000000000000))
  %v128 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v127, <4 x float> %v118, <4 x float> splat (float 0x3FF0000000000000))
  %v129 = fmul <4 x float> %v128, %v121
  %v130 = select <4 x i1> %v122, <4 x float> %v129, <4 x float> splat (float 0x0000000000000000)
  store <4 x float> %v130, ptr %v112, align 4
  %v131 = load <4 x float>, ptr %s5
  %v132 = fadd <4 x float> %v131, %v130
  store <4 x float> %v132, ptr %s5
  %l110.next = add nuw nsw i64 %l110.i, 1
  %v133 = icmp slt i64 %l110.next, %v41
  br i1 %v133, label %l110.body, label %l110.end
l110.end:
  br i1 true, label %l134.body, label %l134.end
l134.body:
  %l134.i = phi i64 [ 0, %l110.end ], [ %l134.next, %l186.end ]
  %v136 = mul i64 %l134.i, 4
  store <4 x float> splat (float 0x0000000000000000), ptr %s135
  %v137 = xor i1 %v39, true
  br i1 %v137, label %w138.then, label %w138.end
w138.then:
  %v139 = getelementptr float, ptr %s2, i64 %v136
  %v140 = load <4 x float>, ptr %v139, align 4
  %v141 = fmul <4 x float> %v140, %v107
  store <4 x float> %v141, ptr %s135
  br label %w138.end
w138.end:
  %v142 = mul i64 %first, %size1
  %v143 = mul i64 %l38.i, 4
  %v144 = add i64 %v142, %v143
  %v145 = getelementptr float, ptr %p2, i64 %v144
  %v146 = getelementptr float, ptr %v145, i64 %l134.i
  %v147 = urem i64 %v41, 4
  %v148 = sub i64 %v41, %v147
  %v149 = icmp slt i64 0, %v148
  br i1 %v149, label %l150.body, label %l150.end
l150.body:
  %l150.i = phi i64 [ 0, %w138.end ], [ %l150.next, %l150.body ]
  %v151 = mul i64 %l150.i, 4
  %v152 = getelementptr float, ptr %s3, i64 %v151
  %v153 = load <4 x float>, ptr %v152, align 4
  %v154 = getelementptr float, ptr %v146, i64 %v151
  %v155 = load float, ptr %v154
  %v156 = insertelement <4 x float> poison, float %v155, i32 0
  %v157 = shufflevector <4 x float> %v156, <4 x float> poison, <4 x i32> zeroinitializer
  %v158 = load <4 x float>, ptr %s135
  %v159 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v157, <4 x float> %v153, <4 x float> %v158)
  store <4 x float> %v159, ptr %s135
  call void asm sideeffect "", "~{memory}"()
  %v160 = getelementptr float, ptr %v152, i64 4
  %v161 = load <4 x float>, ptr %v160, align 4
  %v162 = getelementptr float, ptr %v154, i64 4
  %v163 = load float, ptr %v162
  %v164 = insertelement <4 x float> poison, float %v163, i32 0
  %v165 = shufflevector <4 x float> %v164, <4 x float> poison, <4 x i32> zeroinitializer
  %v166 = load <4 x float>, ptr %s135
  %v167 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v165, <4 x float> %v161, <4 x float> %v166)
  store <4 x float> %v167, ptr %s135
  call void asm sideeffect "", "~{memory}"()
  %v168 = getelementptr float, ptr %v152, i64 8
  %v169 = load <4 x float>, ptr %v168, align 4
  %v170 = getelementptr float, ptr %v154, i64 8
  %v171 = load float, ptr %v170
  %v172 = insertelement <4 x float> poison, float %v171, i32 0
  %v173 = shufflevector <4 x float> %v172, <4 x float> poison, <4 x i32> zeroinitializer
  %v174 = load <4 x float>, ptr %s135
  %v175 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v173, <4 x float> %v169, <4 x float> %v174)
  store <4 x float> %v175, ptr %s135
  call void asm sideeffect "", "~{memory}"()
  %v176 = getelementptr float, ptr %v152, i64 12
  %v177 = load <4 x float>, ptr %v176, align 4
  %v178 = getelementptr float, ptr %v154, i64 12
  %v179 = load float, ptr %v178
  %v180 = insertelement <4 x float> poison, float %v179, i32 0
  %v181 = shufflevector <4 x float> %v180, <4 x float> poison, <4 x i32> zeroinitializer
  %v182 = load <4 x float>, ptr %s135
  %v183 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v181, <4 x float> %v177, <4 x float> %v182)
  store <4 x float> %v183, ptr %s135
  %l150.next = add nuw nsw i64 %l150.i, 4
  %v184 = icmp slt i64 %l150.next, %v148
  br i1 %v184, label %l150.body, label %l150.end
l150.end:
  %v185 = icmp slt i64 %v148, %v41
  br i1 %v185, label %l186.body, label %l186.end
l186.body:
  %l186.i = phi i64 [ %v148, %l150.end ], [ %l186.next, %l186.body ]
  %v187 = mul i64 %l186.i, 4
  %v188 = getelementptr float, ptr %s3, i64 %v187
  %v189 = load <4 x float>, ptr %v188, align 4
  %v190 = getelementptr float, ptr %v146, i64 %v187
  %v191 = load float, ptr %v190
  %v192 = insertelement <4 x float> poison, float %v191, i32 0
  %v193 = shufflevector <4 x float> %v192, <4 x float> poison, <4 x i32> zeroinitializer
  %v194 = load <4 x float>, ptr %s135
  %v195 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v193, <4 x float> %v189, <4 x float> %v194)
  store <4 x float> %v195, ptr %s135
  %l186.next = add nuw nsw i64 %l186.i, 1
  %v196 = icmp slt i64 %l186.next, %v41
  br i1 %v196, label %l186.body, label %l186.end
l186.end:
  %v197 = load <4 x float>, ptr %s135
  %v198 = getelementptr float, ptr %s2, i64 %v136
  store <4 x float> %v197, ptr %v198, align 4
  %l134.next = add nuw nsw i64 %l134.i, 1
  %v199 = icmp slt i64 %l134.next, 4
  br i1 %v199, label %l134.body, label %l134.end
l134.end:
  %l38.next = add nuw nsw i64 %l38.i, 16
  %v200 = icmp slt i64 %l38.next, %size0
  br i1 %v200, label %l38.body, label %l38.end
l38.end:
  %v201 = load <4 x float>, ptr %s5
  %v202 = fdiv <4 x float> splat (float 0x3FF0000000000000), %v201
  %v203 = load <4 x float>, ptr %s2, align 4
  %v204 = fmul <4 x float> %v203, %v202
  %v205 = getelementptr float, ptr %s2, i64 4
  %v206 = load <4 x float>, ptr %v205, align 4
  %v207 = fmul <4 x float> %v206, %v202
  %v208 = getelementptr float, ptr %s2, i64 8
  %v209 = load <4 x float>, ptr %v208, align 4
  %v210 = fmul <4 x float> %v209, %v202
  %v211 = getelementptr float, ptr %s2, i64 12
  %v212 = load <4 x float>, ptr %v211, align 4
  %v213 = fmul <4 x float> %v212, %v202
  %v214 = shufflevector <4 x float> %v204, <4 x float> %v210, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v215 = shufflevector <4 x float> %v204, <4 x float> %v210, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v216 = shufflevector <4 x float> %v207, <4 x float> %v213, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v217 = shufflevector <4 x float> %v207, <4 x float> %v213, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v218 = shufflevector <4 x float> %v214, <4 x float> %v216, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v219 = shufflevector <4 x float> %v214, <4 x float> %v216, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  %v220 = shufflevector <4 x float> %v215, <4 x float> %v217, <4 x i32> <i32 0, i32 4, i32 1, i32 5>
  %v221 = shufflevector <4 x float> %v215, <4 x float> %v217, <4 x i32> <i32 2, i32 6, i32 3, i32 7>
  store <4 x float> %v218, ptr %s3, align 4
  %v222 = getelementptr float, ptr %s3, i64 4
  store <4 x float> %v219, ptr %v222, align 4
  %v223 = getelementptr float, ptr %s3, i64 8
  store <4 x float> %v220, ptr %v223, align 4
  %v224 = getelementptr float, ptr %s3, i64 12
  store <4 x float> %v221, ptr %v224, align 4
  br i1 true, label %l225.body, label %l225.end
l225.body:
  %l225.i = phi i64 [ 0, %l38.end ], [ %l225.next, %l225.body ]
  %v226 = mul i64 %l225.i, 4
  %v227 = getelementptr float, ptr %s3, i64 %v226
  %v228 = load <4 x float>, ptr %v227, align 4
  %v229 = add i64 %last, %l225.i
  %v230 = mul i64 %v229, 4
  %v231 = add i64 %v6, %v230
  %v232 = getelementptr float, ptr %p3, i64 %v231
  store <4 x float> %v228, ptr %v232, align 4
  %l225.next = add nuw nsw i64 %l225.i, 1
  %v233 = icmp slt i64 %l225.next, 4
  br i1 %v233, label %l225.body, label %l225.end
l225.end:
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
