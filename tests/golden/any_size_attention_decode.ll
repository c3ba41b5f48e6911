; attention 2x1x1x64?nx4x4
; problem   batch=2 m=1 n=9600 depth=4 values=4 key_bytes=32  (an example: each run decides its sizes)
; schedule  lanes=4 tile_n=16 wide=1 splits=2
; engine    attention/decode

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %workspace, ptr %counters, ptr %sizes, i64 %first, i64 %last) #1 {
  %mode = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  %before = load i32, ptr %mode
  %flushing = or i32 %before, 32832
  store i32 %flushing, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %workspace, ptr %counters, ptr %sizes, i64 %first, i64 %last)
  store i32 %before, ptr %mode
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  ret void
}

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %workspace, ptr %counters, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [4 x float], align 64
  %s2 = alloca [4 x float], align 64
  %s3 = alloca [20 x float], align 64
  %s4 = alloca [1 x float], align 64
  %s5 = alloca [1 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %size3.at = getelementptr i64, ptr %sizes, i64 3
  %size3 = load i64, ptr %size3.at, !invariant.load !{}
  %size4.at = getelementptr i64, ptr %sizes, i64 4
  %size4 = load i64, ptr %size4.at, !invariant.load !{}
  %s47 = alloca <4 x float>
  %s48 = alloca <4 x float>
  %s49 = alloca <4 x float>
  %s50 = alloca <4 x float>
  %s93 = alloca <4 x float>
  %s94 = alloca <4 x float>
  %s178 = alloca <4 x float>
  %s208 = alloca i1
  %s228 = alloca float
  %s229 = alloca float
  %v6 = icmp slt i64 %first, %last
  br i1 %v6, label %l7.body, label %l7.end
l7.body:
  %l7.i = phi i64 [ %first, %entry ], [ %l7.next, %w26.end ]
  %v8 = and i64 %size0, 4294967295
  %v9 = and i64 %l7.i, 2147483647
  %v10 = mul i64 %v9, %v8
  %v11 = lshr i64 %v10, %size1
  %v12 = mul i64 %v11, %size2
  %v13 = sub i64 %l7.i, %v12
  %v14 = add i64 %size3, %size2
  %v15 = sub i64 %v14, 1
  %v16 = udiv i64 %v15, %size2
  %v17 = icmp slt i64 %v16, 256
  %v18 = select i1 %v17, i64 256, i64 %v16
  %v19 = add i64 %v18, 15
  %v20 = udiv i64 %v19, 16
  %v21 = mul i64 %v20, 16
  %v22 = mul i64 %v13, %v21
  %v23 = icmp eq i64 %v13, 0
  %v24 = icmp slt i64 %v22, %size3
  %v25 = or i1 %v23, %v24
  br i1 %v25, label %w26.then, label %w26.end
w26.then:
  %v27 = mul i64 %v11, 4
  %v28 = getelementptr float, ptr %p0, i64 %v27
  %v29 = load <4 x float>, ptr %v28, align 4
  store <4 x float> %v29, ptr %s1, align 4
  store <4 x float> splat (float 0x0000000000000000), ptr %s2, align 4
  store float 0xFFF0000000000000, ptr %s4
  store float 0x0000000000000000, ptr %s5
  %v30 = add i64 %v22, %v21
  %v31 = call i64 @llvm.smin.i64(i64 %v30, i64 %size3)
  %v32 = icmp slt i64 %v22, %v31
  br i1 %v32, label %l33.body, label %l33.end
l33.body:
  %l33.i = phi i64 [ %v22, %w26.then ], [ %l33.next, %l184.end ]
  br i1 true, label %l34.body, label %l34.end
l34.body:
  %l34.i = phi i64 [ 0, %l33.body ], [ %l34.next, %l36.end ]
  %v35 = add i64 %l33.i, %l34.i
  br i1 true, label %l36.body, label %l36.end
l36.body:
  %l36.i = phi i64 [ 0, %l34.body ], [ %l36.next, %l36.body ]
  %v37 = add i64 %v35, %l36.i
  %v38 = mul i64 %v11, %size4
  %v39 = mul i64 %v37, 4
  %v40 = add i64 %v38, %v39
  %v41 = mul i64 %v40, 4
  %v42 = getelementptr i8, ptr %p2, i64 %v41
  call void @llvm.prefetch.p0(ptr %v42, i32 0, i32 2, i32 1)
  %l36.next = add nuw nsw i64 %l36.i, 1
  %v43 = icmp slt i64 %l36.next, 4
  br i1 %v43, label %l36.body, label %l36.end
l36.end:
  %v44 = add i64 %v35, 1
  %v45 = add i64 %v35, 2
  %v46 = add i64 %v35, 3
  store <4 x float> splat (float 0x0000000000000000), ptr %s47
  store <4 x float> splat (float 0x0000000000000000), ptr %s48
  store <4 x float> splat (float 0x0000000000000000), ptr %s49
  store <4 x float> splat (float 0x0000000000000000), ptr %s50
  %v51 = mul i64 %v11, %size4
  %v52 = mul i64 %v35, 4
  %v53 = add i64 %v51, %v52
  %v54 = getelementptr float, ptr %p1, i64 %v53
  %v55 = load <4 x float>, ptr %v54, align 4
  %v56 = mul i64 %v44, 4
  %v57 = add i64 %v51, %v56
  %v58 = getelementptr float, ptr %p1, i64 %v57
  %v59 = load <4 x float>, ptr %v58, align 4
  %v60 = mul i64 %v45, 4
  %v61 = add i64 %v51, %v60
  %v62 = getelementptr float, ptr %p1, i64 %v61
  %v63 = load <4 x float>, ptr %v62, align 4
  %v64 = mul i64 %v46, 4
  %v65 = add i64 %v51, %v64
  %v66 = getelementptr float, ptr %p1, i64 %v65
  %v67 = load <4 x float>, ptr %v66, align 4
  %v68 = load <4 x float>, ptr %s1, align 4
  %v69 = load <4 x float>, ptr %s47
  %v70 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v55, <4 x float> %v68, <4 x float> %v69)
  store <4 x float> %v70, ptr %s47
  %v71 = load <4 x float>, ptr %s48
  %v72 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v59, <4 x float> %v68, <4 x float> %v71)
  store <4 x float> %v72, ptr %s48
  %v73 = load <4 x float>, ptr %s49
  %v74 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v63, <4 x float> %v68, <4 x float> %v73)
  store <4 x float> %v74, ptr %s49
  %v75 = load <4 x float>, ptr %s50
  %v76 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v67, <4 x float> %v68, <4 x float> %v75)
  store <4 x float> %v76, ptr %s50
  %v77 = load <4 x float>, ptr %s47
  %v78 = load <4 x float>, ptr %s48
  %v79 = load <4 x float>, ptr %s49
  %v80 = load <4 x float>, ptr %s50
  %v81 = shufflevector <4 x float> %v77, <4 x float> %v78, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v82 = shufflevector <4 x float> %v77, <4 x float> %v78, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v83 = fadd <4 x float> %v81, %v82
  %v84 = shufflevector <4 x float> %v79, <4 x float> %v80, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v85 = shufflevector <4 x float> %v79, <4 x float> %v80, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v86 = fadd <4 x float> %v84, %v85
  %v87 = shufflevector <4 x float> %v83, <4 x float> %v86, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v88 = shufflevector <4 x float> %v83, <4 x float> %v86, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v89 = fadd <4 x float> %v87, %v88
  %v90 = getelementptr float, ptr %s3, i64 %l34.i
  store <4 x float> %v89, ptr %v90, align 4
  %l34.next = add nuw nsw i64 %l34.i, 4
  %v91 = icmp slt i64 %l34.next, 16
  br i1 %v91, label %l34.body, label %l34.end
l34.end:
  %v92 = load float, ptr %s4
  %v95 = insertelement <4 x float> poison, float %v92, i32 0
  %v96 = shufflevector <4 x float> %v95, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %v96, ptr %s93
  br i1 true, label %l97.body, label %l97.end
l97.body:
  %l97.i = phi i64 [ 0, %l34.end ], [ %l97.next, %l97.body ]
  %v98 = add i64 %l33.i, %l97.i
  %v99 = getelementptr float, ptr %s3, i64 %l97.i
  %v100 = load <4 x float>, ptr %v99, align 4
  %v101 = fmul contract <4 x float> %v100, splat (float 0x3FE0000000000000)
  %v102 = load <4 x float>, ptr %s93
  %v103 = fcmp ogt <4 x float> %v101, %v102
  %v104 = load <4 x float>, ptr %s93
  %v105 = select <4 x i1> %v103, <4 x float> %v101, <4 x float> %v104
  store <4 x float> %v105, ptr %s93
  store <4 x float> %v101, ptr %v99, align 4
  %l97.next = add nuw nsw i64 %l97.i, 4
  %v106 = icmp slt i64 %l97.next, 16
  br i1 %v106, label %l97.body, label %l97.end
l97.end:
  %v107 = load <4 x float>, ptr %s93
  %v108 = shufflevector <4 x float> %v107, <4 x float> %v107, <2 x i32> <i32 0, i32 1>
  %v109 = shufflevector <4 x float> %v107, <4 x float> %v107, <2 x i32> <i32 2, i32 3>
  %v110 = call nsz <2 x float> @llvm.maximum.v2f32(<2 x float> %v108, <2 x float> %v109)
  %v111 = shufflevector <2 x float> %v110, <2 x float> %v110, <1 x i32> <i32 0>
  %v112 = shufflevector <2 x float> %v110, <2 x float> %v110, <1 x i32> <i32 1>
  %v113 = call nsz <1 x float> @llvm.maximum.v1f32(<1 x float> %v111, <1 x float> %v112)
  %v114 = extractelement <1 x float> %v113, i32 0
  store float %v114, ptr %s4
  %v115 = fcmp oeq float %v114, 0xFFF0000000000000
  %v116 = select i1 %v115, float 0x0000000000000000, float %v114
  %v117 = fsub float %v92, %v116
  %v118 = insertelement <4 x float> poison, float %v117, i32 0
  %v119 = shufflevector <4 x float> %v118, <4 x float> poison, <4 x i32> zeroinitializer
  %v120 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v119, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %v121 = fsub <4 x float> %v120, splat (float 0x4168000FE0000000)
  %v122 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v121, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v119)
  %v123 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v121, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v122)
  %v124 = bitcast <4 x float> %v120 to <4 x i32>
  %v125 = shl <4 x i32> %v124, splat (i32 23)
  %v126 = bitcast <4 x i32> %v125 to <4 x float>
  %v127 = fcmp uge <4 x float> %v119, splat (float 0xC055D58A00000000)
  %v128 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F56D10FC0000000), <4 x float> %v123, <4 x float> splat (float 0x3F8120B620000000))
  %v129 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v128, <4 x float> %v123, <4 x float> splat (float 0x3FA55551A0000000))
  %v130 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v129, <4 x float> %v123, <4 x float> splat (float 0x3FC5554DE0000000))
  %v131 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v130, <4 x float> %v123, <4 x float> splat (float 0x3FE0000000000000))
  %v132 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v131, <4 x float> %v123, <4 x float> splat (float 0x3FF0000000000000))
  %v133 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v132, <4 x float> %v123, <4 x float> splat (float 0x3FF0000000000000))
  %v134 = fmul <4 x float> %v133, %v126
  %v135 = select <4 x i1> %v127, <4 x float> %v134, <4 x float> splat (float 0x0000000000000000)
  %v136 = extractelement <4 x float> %v135, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s94
  br i1 true, label %l137.body, label %l137.end
l137.body:
  %l137.i = phi i64 [ 0, %l97.end ], [ %l137.next, %l137.body ]
  %v138 = add i64 %l33.i, %l137.i
  %v139 = getelementptr float, ptr %s3, i64 %l137.i
  %v140 = load <4 x float>, ptr %v139, align 4
  %v141 = insertelement <4 x float> poison, float %v116, i32 0
  %v142 = shufflevector <4 x float> %v141, <4 x float> poison, <4 x i32> zeroinitializer
  %v143 = fsub <4 x float> %v140, %v142
  %v144 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v143, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %v145 = fsub <4 x float> %v144, splat (float 0x4168000FE0000000)
  %v146 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v145, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v143)
  %v147 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v145, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v146)
  %v148 = bitcast <4 x float> %v144 to <4 x i32>
  %v149 = shl <4 x i32> %v148, splat (i32 23)
  %v150 = bitcast <4 x i32> %v149 to <4 x float>
  %v151 = fcmp uge <4 x float> %v143, splat (float 0xC055D58A00000000)
  %v152 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F56D10FC0000000), <4 x float> %v147, <4 x float> splat (float 0x3F8120B620000000))
  %v153 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v152, <4 x float> %v147, <4 x float> splat (float 0x3FA55551A0000000))
  %v154 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v153, <4 x float> %v147, <4 x float> splat (float 0x3FC5554DE0000000))
  %v155 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v154, <4 x float> %v147, <4 x float> splat (float 0x3FE0000000000000))
  %v156 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v155, <4 x float> %v147, <4 x float> splat (float 0x3FF0000000000000))
  %v157 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v156, <4 x float> %v147, <4 x float> splat (float 0x3FF0000000000000))
  %v158 = fmul <4 x float> %v157, %v150
  %v159 = select <4 x i1> %v151, <4 x float> %v158, <4 x float> splat (float 0x0000000000000000)
  store <4 x float> %v159, ptr %v139, align 4
  %v160 = load <4 x float>, ptr %s94
  %v161 = fadd <4 x float> %v160, %v159
  store <4 x float> %v161, ptr %s94
  %l137.next = add nuw nsw i64 %l137.i, 4
  %v162 = icmp slt i64 %l137.next, 16
  br i1 %v162, label %l137.body, label %l137.end
l137.end:
  %v163 = load float, ptr %s5
  %v164 = fmul float %v163, %v136
  %v165 = load <4 x float>, ptr %s94
  %v166 = shufflevector <4 x float> %v165, <4 x float> %v165, <2 x i32> <i32 0, i32 1>
  %v167 = shufflevector <4 x float> %v165, <4 x float> %v165, <2 x i32> <i32 2, i32 3>
  %v168 = fadd contract <2 x float> %v166, %v167
  %v169 = shufflevector <2 x float> %v168, <2 x float> %v168, <1 x i32> <i32 0>
  %v170 = shufflevector <2 x float> %v168, <2 x float> %v168, <1 x i32> <i32 1>
  %v171 = fadd contract <1 x float> %v169, %v170
  %v172 = extractelement <1 x float> %v171, i32 0
  %v173 = fadd float %v164, %v172
  store float %v173, ptr %s5
  %v174 = load <4 x float>, ptr %s2, align 4
  %v175 = insertelement <4 x float> poison, float %v136, i32 0
  %v176 = shufflevector <4 x float> %v175, <4 x float> poison, <4 x i32> zeroinitializer
  %v177 = fmul <4 x float> %v174, %v176
  store <4 x float> %v177, ptr %s2, align 4
  %v179 = load <4 x float>, ptr %s2, align 4
  store <4 x float> %v179, ptr %s178
  %v180 = icmp eq i64 0, 0
  %v181 = add i64 %l33.i, 16
  %v182 = icmp slt i64 %v181, %v31
  %v183 = and i1 %v180, %v182
  br i1 true, label %l184.body, label %l184.end
l184.body:
  %l184.i = phi i64 [ 0, %l137.end ], [ %l184.next, %w185.end ]
  br i1 %v183, label %w185.then, label %w185.end
w185.then:
  %v186 = add i64 %l33.i, %l184.i
  %v187 = add i64 %v186, 16
  %v188 = mul i64 %v11, %size4
  %v189 = mul i64 %v187, 4
  %v190 = add i64 %v188, %v189
  %v191 = mul i64 %v190, 4
  %v192 = getelementptr i8, ptr %p1, i64 %v191
  call void @llvm.prefetch.p0(ptr %v192, i32 0, i32 2, i32 1)
  br label %w185.end
w185.end:
  %v193 = add i64 %l33.i, %l184.i
  %v194 = mul i64 %v11, %size4
  %v195 = mul i64 %v193, 4
  %v196 = add i64 %v194, %v195
  %v197 = getelementptr float, ptr %p2, i64 %v196
  %v198 = load <4 x float>, ptr %v197, align 4
  %v199 = getelementptr float, ptr %s3, i64 %l184.i
  %v200 = load float, ptr %v199
  %v201 = insertelement <4 x float> poison, float %v200, i32 0
  %v202 = shufflevector <4 x float> %v201, <4 x float> poison, <4 x i32> zeroinitializer
  %v203 = load <4 x float>, ptr %s178
  %v204 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v202, <4 x float> %v198, <4 x float> %v203)
  store <4 x float> %v204, ptr %s178
  %l184.next = add nuw nsw i64 %l184.i, 1
  %v205 = icmp slt i64 %l184.next, 16
  br i1 %v205, label %l184.body, label %l184.end
l184.end:
  %v206 = load <4 x float>, ptr %s178
  store <4 x float> %v206, ptr %s2, align 4
  %l33.next = add nuw nsw i64 %l33.i, 16
  %v207 = icmp slt i64 %l33.next, %v31
  br i1 %v207, label %l33.body, label %l33.end
l33.end:
  %v209 = icmp sle i64 %size3, %v21
  store i1 %v209, ptr %s208
  %v210 = icmp sgt i64 %size3, %v21
  br i1 %v210, label %w211.then, label %w211.end
w211.then:
  %v212 = mul i64 %v12, 32
  %v213 = getelementptr float, ptr %workspace, i64 %v212
  %v214 = mul i64 %v13, 32
  %v215 = getelementptr float, ptr %v213, i64 %v214
  %v216 = load <4 x float>, ptr %s2, align 4
  store <4 x float> %v216, ptr %v215, align 4
  %v217 = load float, ptr %s4
  %v218 = getelementptr float, ptr %v215, i64 4
  store float %v217, ptr %v218
  %v219 = load float, ptr %s5
  %v220 = getelementptr float, ptr %v215, i64 5
  store float %v219, ptr %v220
  %v221 = sub i64 %size3, 1
  %v222 = udiv i64 %v221, %v21
  %v223 = getelementptr i64, ptr %counters, i64 %v11
  %v224 = atomicrmw add ptr %v223, i64 1 acq_rel, align 8
  %v225 = icmp eq i64 %v224, %v222
  store i1 %v225, ptr %s208
  br i1 %v225, label %w226.then, label %w226.end
w226.then:
  store i64 0, ptr %v223, align 8
  %v227 = add i64 %v222, 1
  store float 0xFFF0000000000000, ptr %s228
  %v230 = icmp slt i64 0, %v227
  br i1 %v230, label %l231.body, label %l231.end
l231.body:
  %l231.i = phi i64 [ 0, %w226.then ], [ %l231.next, %l231.body ]
  %v232 = mul i64 %l231.i, 32
  %v233 = add i64 %v232, 4
  %v234 = getelementptr float, ptr %v213, i64 %v233
  %v235 = load float, ptr %v234
  %v236 = load float, ptr %s228
  %v237 = fcmp ogt float %v235, %v236
  %v238 = load float, ptr %s228
  %v239 = select i1 %v237, float %v235, float %v238
  store float %v239, ptr %s228
  %l231.next = add nuw nsw i64 %l231.i, 1
  %v240 = icmp slt i64 %l231.next, %v227
  br i1 %v240, label %l231.body, label %l231.end
l231.end:
  %v241 = load float, ptr %s228
  %v242 = fcmp oeq float %v241, 0xFFF0000000000000
  %v243 = load float, ptr %s228
  %v244 = select i1 %v242, float 0x0000000000000000, float %v243
  store float 0x0000000000000000, ptr %s229
  store <4 x float> splat (float 0x0000000000000000), ptr %s2, align 4
  br i1 %v230, label %l245.body, label %l245.end
l245.body:
  %l245.i = phi i64 [ 0, %l231.end ], [ %l245.next, %l245.body ]
  %v246 = mul i64 %l245.i, 32
  %v247 = add i64 %v246, 4
  %v248 = getelementptr float, ptr %v213, i64 %v247
  %v249 = load float, ptr %v248
  %v250 = fsub float %v249, %v244
  %v251 = insertelement <4 x float> poison, float %v250, i32 0
  %v252 = shufflevector <4 x float> %v251, <4 x float> poison, <4 x i32> zeroinitializer
  %v253 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v252, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000FE0000000))
  %v254 = fsub <4 x float> %v253, splat (float 0x4168000FE0000000)
  %v255 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v254, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v252)
  %v256 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v254, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v255)
  %v257 = bitcast <4 x float> %v253 to <4 x i32>
  %v258 = shl <4 x i32> %v257, splat (i32 23)
  %v259 = bitcast <4 x i32> %v258 to <4 x float>
  %v260 = fcmp uge <4 x float> %v252, splat (float 0xC055D58A00000000)
  %v261 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F56D10FC0000000), <4 x float> %v256, <4 x float> splat (float 0x3F8120B620000000))
  %v262 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v261, <4 x float> %v256, <4 x float> splat (float 0x3FA55551A0000000))
  %v263 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v262, <4 x float> %v256, <4 x float> splat (float 0x3FC5554DE0000000))
  %v264 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v263, <4 x float> %v256, <4 x float> splat (float 0x3FE0000000000000))
  %v265 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v264, <4 x float> %v256, <4 x float> splat (float 0x3FF0000000000000))
  %v266 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v265, <4 x float> %v256, <4 x float> splat (float 0x3FF0000000000000))
  %v267 = fmul <4 x float> %v266, %v259
  %v268 = select <4 x i1> %v260, <4 x float> %v267, <4 x float> splat (float 0x0000000000000000)
  %v269 = add i64 %v246, 5
  %v270 = getelementptr float, ptr %v213, i64 %v269
  %v271 = load float, ptr %v270
  %v272 = extractelement <4 x float> %v268, i32 0
  %v273 = load float, ptr %s229
  %v274 = call float @llvm.fmuladd.f32(float %v271, float %v272, float %v273)
  store float %v274, ptr %s229
  %v275 = getelementptr float, ptr %v213, i64 %v246
  %v276 = load <4 x float>, ptr %v275, align 4
  %v277 = load <4 x float>, ptr %s2, align 4
  %v278 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v276, <4 x float> %v268, <4 x float> %v277)
  store <4 x float> %v278, ptr %s2, align 4
  %l245.next = add nuw nsw i64 %l245.i, 1
  %v279 = icmp slt i64 %l245.next, %v227
  br i1 %v279, label %l245.body, label %l245.end
l245.end:
  %v280 = load float, ptr %s229
  store float %v280, ptr %s5
  br label %w226.end
w226.end:
  br label %w211.end
w211.end:
  %v281 = load i1, ptr %s208
  br i1 %v281, label %w282.then, label %w282.end
w282.then:
  %v283 = load <4 x float>, ptr %s2, align 4
  %v284 = load float, ptr %s5
  %v285 = fdiv float 0x3FF0000000000000, %v284
  %v286 = insertelement <4 x float> poison, float %v285, i32 0
  %v287 = shufflevector <4 x float> %v286, <4 x float> poison, <4 x i32> zeroinitializer
  %v288 = fmul <4 x float> %v283, %v287
  store <4 x float> %v288, ptr %s2, align 4
  %v289 = load <4 x float>, ptr %s2, align 4
  %v290 = getelementptr float, ptr %p3, i64 %v27
  store <4 x float> %v289, ptr %v290, align 4
  br label %w282.end
w282.end:
  br label %w26.end
w26.end:
  %l7.next = add nuw nsw i64 %l7.i, 1
  %v291 = icmp slt i64 %l7.next, %last
  br i1 %v291, label %l7.body, label %l7.end
l7.end:
  ret void
}
