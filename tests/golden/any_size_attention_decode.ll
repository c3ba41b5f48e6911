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
  %s211 = alloca <4 x float>
  %s241 = alloca i1
  %s261 = alloca float
  %s262 = alloca float
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
  %l33.i = phi i64 [ %v22, %w26.then ], [ %l33.next, %l217.end ]
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
  %v110 = fcmp ogt <2 x float> %v108, %v109
  %v111 = fcmp uno <2 x float> %v108, %v108
  %v112 = select <2 x i1> %v110, <2 x float> %v108, <2 x float> %v109
  %v113 = select <2 x i1> %v111, <2 x float> %v108, <2 x float> %v112
  %v114 = shufflevector <2 x float> %v113, <2 x float> %v113, <1 x i32> <i32 0>
  %v115 = shufflevector <2 x float> %v113, <2 x float> %v113, <1 x i32> <i32 1>
  %v116 = fcmp ogt <1 x float> %v114, %v115
  %v117 = fcmp uno <1 x float> %v114, %v114
  %v118 = select <1 x i1> %v116, <1 x float> %v114, <1 x float> %v115
  %v119 = select <1 x i1> %v117, <1 x float> %v114, <1 x float> %v118
  %v120 = extractelement <1 x float> %v119, i32 0
  store float %v120, ptr %s4
  %v121 = fcmp oeq float %v120, 0xFFF0000000000000
  %v122 = select i1 %v121, float 0x0000000000000000, float %v120
  %v123 = fsub float %v92, %v122
  %v124 = insertelement <4 x float> poison, float %v123, i32 0
  %v125 = shufflevector <4 x float> %v124, <4 x float> poison, <4 x i32> zeroinitializer
  %v126 = fcmp olt <4 x float> %v125, splat (float 0xC05A000000000000)
  %v127 = select <4 x i1> %v126, <4 x float> splat (float 0x0000000000000000), <4 x float> %v125
  %v128 = fcmp ogt <4 x float> %v127, splat (float 0x4056400000000000)
  %v129 = select <4 x i1> %v128, <4 x float> splat (float 0x4056400000000000), <4 x float> %v127
  %v130 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v129, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v131 = fsub <4 x float> %v130, splat (float 0x4168000000000000)
  %v132 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v131, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v129)
  %v133 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v131, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v132)
  %v134 = fmul <4 x float> %v133, %v133
  %v135 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v133, <4 x float> splat (float 0x3F56D49200000000))
  %v136 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v135, <4 x float> %v133, <4 x float> splat (float 0x3F81110E00000000))
  %v137 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v136, <4 x float> %v133, <4 x float> splat (float 0x3FA5554E40000000))
  %v138 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v137, <4 x float> %v133, <4 x float> splat (float 0x3FC5555560000000))
  %v139 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v138, <4 x float> %v133, <4 x float> splat (float 0x3FE0000000000000))
  %v140 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v134, <4 x float> %v139, <4 x float> %v133)
  %v141 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v142 = bitcast <4 x float> %v130 to <4 x i32>
  %v143 = sub <4 x i32> %v142, %v141
  %v144 = ashr <4 x i32> %v143, splat (i32 1)
  %v145 = fadd <4 x float> %v140, splat (float 0x3FF0000000000000)
  %v146 = add <4 x i32> %v144, splat (i32 127)
  %v147 = shl <4 x i32> %v146, splat (i32 23)
  %v148 = bitcast <4 x i32> %v147 to <4 x float>
  %v149 = fmul <4 x float> %v145, %v148
  %v150 = sub <4 x i32> %v143, %v144
  %v151 = add <4 x i32> %v150, splat (i32 127)
  %v152 = shl <4 x i32> %v151, splat (i32 23)
  %v153 = bitcast <4 x i32> %v152 to <4 x float>
  %v154 = fmul <4 x float> %v149, %v153
  %v155 = select <4 x i1> %v126, <4 x float> splat (float 0x0000000000000000), <4 x float> %v154
  %v156 = extractelement <4 x float> %v155, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s94
  br i1 true, label %l157.body, label %l157.end
l157.body:
  %l157.i = phi i64 [ 0, %l97.end ], [ %l157.next, %l157.body ]
  %v158 = add i64 %l33.i, %l157.i
  %v159 = getelementptr float, ptr %s3, i64 %l157.i
  %v160 = load <4 x float>, ptr %v159, align 4
  %v161 = insertelement <4 x float> poison, float %v122, i32 0
  %v162 = shufflevector <4 x float> %v161, <4 x float> poison, <4 x i32> zeroinitializer
  %v163 = fsub <4 x float> %v160, %v162
  %v164 = fcmp olt <4 x float> %v163, splat (float 0xC05A000000000000)
  %v165 = select <4 x i1> %v164, <4 x float> splat (float 0x0000000000000000), <4 x float> %v163
  %v166 = fcmp ogt <4 x float> %v165, splat (float 0x4056400000000000)
  %v167 = select <4 x i1> %v166, <4 x float> splat (float 0x4056400000000000), <4 x float> %v165
  %v168 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v167, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v169 = fsub <4 x float> %v168, splat (float 0x4168000000000000)
  %v170 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v169, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v167)
  %v171 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v169, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v170)
  %v172 = fmul <4 x float> %v171, %v171
  %v173 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v171, <4 x float> splat (float 0x3F56D49200000000))
  %v174 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v173, <4 x float> %v171, <4 x float> splat (float 0x3F81110E00000000))
  %v175 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v174, <4 x float> %v171, <4 x float> splat (float 0x3FA5554E40000000))
  %v176 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v175, <4 x float> %v171, <4 x float> splat (float 0x3FC5555560000000))
  %v177 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v176, <4 x float> %v171, <4 x float> splat (float 0x3FE0000000000000))
  %v178 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v172, <4 x float> %v177, <4 x float> %v171)
  %v179 = bitcast <4 x float> %v168 to <4 x i32>
  %v180 = sub <4 x i32> %v179, %v141
  %v181 = ashr <4 x i32> %v180, splat (i32 1)
  %v182 = fadd <4 x float> %v178, splat (float 0x3FF0000000000000)
  %v183 = add <4 x i32> %v181, splat (i32 127)
  %v184 = shl <4 x i32> %v183, splat (i32 23)
  %v185 = bitcast <4 x i32> %v184 to <4 x float>
  %v186 = fmul <4 x float> %v182, %v185
  %v187 = sub <4 x i32> %v180, %v181
  %v188 = add <4 x i32> %v187, splat (i32 127)
  %v189 = shl <4 x i32> %v188, splat (i32 23)
  %v190 = bitcast <4 x i32> %v189 to <4 x float>
  %v191 = fmul <4 x float> %v186, %v190
  %v192 = select <4 x i1> %v164, <4 x float> splat (float 0x0000000000000000), <4 x float> %v191
  store <4 x float> %v192, ptr %v159, align 4
  %v193 = load <4 x float>, ptr %s94
  %v194 = fadd <4 x float> %v193, %v192
  store <4 x float> %v194, ptr %s94
  %l157.next = add nuw nsw i64 %l157.i, 4
  %v195 = icmp slt i64 %l157.next, 16
  br i1 %v195, label %l157.body, label %l157.end
l157.end:
  %v196 = load float, ptr %s5
  %v197 = fmul float %v196, %v156
  %v198 = load <4 x float>, ptr %s94
  %v199 = shufflevector <4 x float> %v198, <4 x float> %v198, <2 x i32> <i32 0, i32 1>
  %v200 = shufflevector <4 x float> %v198, <4 x float> %v198, <2 x i32> <i32 2, i32 3>
  %v201 = fadd contract <2 x float> %v199, %v200
  %v202 = shufflevector <2 x float> %v201, <2 x float> %v201, <1 x i32> <i32 0>
  %v203 = shufflevector <2 x float> %v201, <2 x float> %v201, <1 x i32> <i32 1>
  %v204 = fadd contract <1 x float> %v202, %v203
  %v205 = extractelement <1 x float> %v204, i32 0
  %v206 = fadd float %v197, %v205
  store float %v206, ptr %s5
  %v207 = load <4 x float>, ptr %s2, align 4
  %v208 = insertelement <4 x float> poison, float %v156, i32 0
  %v209 = shufflevector <4 x float> %v208, <4 x float> poison, <4 x i32> zeroinitializer
  %v210 = fmul <4 x float> %v207, %v209
  store <4 x float> %v210, ptr %s2, align 4
  %v212 = load <4 x float>, ptr %s2, align 4
  store <4 x float> %v212, ptr %s211
  %v213 = icmp eq i64 0, 0
  %v214 = add i64 %l33.i, 16
  %v215 = icmp slt i64 %v214, %v31
  %v216 = and i1 %v213, %v215
  br i1 true, label %l217.body, label %l217.end
l217.body:
  %l217.i = phi i64 [ 0, %l157.end ], [ %l217.next, %w218.end ]
  br i1 %v216, label %w218.then, label %w218.end
w218.then:
  %v219 = add i64 %l33.i, %l217.i
  %v220 = add i64 %v219, 16
  %v221 = mul i64 %v11, %size4
  %v222 = mul i64 %v220, 4
  %v223 = add i64 %v221, %v222
  %v224 = mul i64 %v223, 4
  %v225 = getelementptr i8, ptr %p1, i64 %v224
  call void @llvm.prefetch.p0(ptr %v225, i32 0, i32 2, i32 1)
  br label %w218.end
w218.end:
  %v226 = add i64 %l33.i, %l217.i
  %v227 = mul i64 %v11, %size4
  %v228 = mul i64 %v226, 4
  %v229 = add i64 %v227, %v228
  %v230 = getelementptr float, ptr %p2, i64 %v229
  %v231 = load <4 x float>, ptr %v230, align 4
  %v232 = getelementptr float, ptr %s3, i64 %l217.i
  %v233 = load float, ptr %v232
  %v234 = insertelement <4 x float> poison, float %v233, i32 0
  %v235 = shufflevector <4 x float> %v234, <4 x float> poison, <4 x i32> zeroinitializer
  %v236 = load <4 x float>, ptr %s211
  %v237 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v235, <4 x float> %v231, <4 x float> %v236)
  store <4 x float> %v237, ptr %s211
  %l217.next = add nuw nsw i64 %l217.i, 1
  %v238 = icmp slt i64 %l217.next, 16
  br i1 %v238, label %l217.body, label %l217.end
l217.end:
  %v239 = load <4 x float>, ptr %s211
  store <4 x float> %v239, ptr %s2, align 4
  %l33.next = add nuw nsw i64 %l33.i, 16
  %v240 = icmp slt i64 %l33.next, %v31
  br i1 %v240, label %l33.body, label %l33.end
l33.end:
  %v242 = icmp sle i64 %size3, %v21
  store i1 %v242, ptr %s241
  %v243 = icmp sgt i64 %size3, %v21
  br i1 %v243, label %w244.then, label %w244.end
w244.then:
  %v245 = mul i64 %v12, 32
  %v246 = getelementptr float, ptr %workspace, i64 %v245
  %v247 = mul i64 %v13, 32
  %v248 = getelementptr float, ptr %v246, i64 %v247
  %v249 = load <4 x float>, ptr %s2, align 4
  store <4 x float> %v249, ptr %v248, align 4
  %v250 = load float, ptr %s4
  %v251 = getelementptr float, ptr %v248, i64 4
  store float %v250, ptr %v251
  %v252 = load float, ptr %s5
  %v253 = getelementptr float, ptr %v248, i64 5
  store float %v252, ptr %v253
  %v254 = sub i64 %size3, 1
  %v255 = udiv i64 %v254, %v21
  %v256 = getelementptr i64, ptr %counters, i64 %v11
  %v257 = atomicrmw add ptr %v256, i64 1 acq_rel, align 8
  %v258 = icmp eq i64 %v257, %v255
  store i1 %v258, ptr %s241
  br i1 %v258, label %w259.then, label %w259.end
w259.then:
  store i64 0, ptr %v256, align 8
  %v260 = add i64 %v255, 1
  store float 0xFFF0000000000000, ptr %s261
  %v263 = icmp slt i64 0, %v260
  br i1 %v263, label %l264.body, label %l264.end
l264.body:
  %l264.i = phi i64 [ 0, %w259.then ], [ %l264.next, %l264.body ]
  %v265 = mul i64 %l264.i, 32
  %v266 = add i64 %v265, 4
  %v267 = getelementptr float, ptr %v246, i64 %v266
  %v268 = load float, ptr %v267
  %v269 = load float, ptr %s261
  %v270 = fcmp ogt float %v268, %v269
  %v271 = load float, ptr %s261
  %v272 = select i1 %v270, float %v268, float %v271
  store float %v272, ptr %s261
  %l264.next = add nuw nsw i64 %l264.i, 1
  %v273 = icmp slt i64 %l264.next, %v260
  br i1 %v273, label %l264.body, label %l264.end
l264.end:
  %v274 = load float, ptr %s261
  %v275 = fcmp oeq float %v274, 0xFFF0000000000000
  %v276 = load float, ptr %s261
  %v277 = select i1 %v275, float 0x0000000000000000, float %v276
  store float 0x0000000000000000, ptr %s262
  store <4 x float> splat (float 0x0000000000000000), ptr %s2, align 4
  br i1 %v263, label %l278.body, label %l278.end
l278.body:
  %l278.i = phi i64 [ 0, %l264.end ], [ %l278.next, %l278.body ]
  %v279 = mul i64 %l278.i, 32
  %v280 = add i64 %v279, 4
  %v281 = getelementptr float, ptr %v246, i64 %v280
  %v282 = load float, ptr %v281
  %v283 = fsub float %v282, %v277
  %v284 = insertelement <4 x float> poison, float %v283, i32 0
  %v285 = shufflevector <4 x float> %v284, <4 x float> poison, <4 x i32> zeroinitializer
  %v286 = fcmp olt <4 x float> %v285, splat (float 0xC05A000000000000)
  %v287 = select <4 x i1> %v286, <4 x float> splat (float 0x0000000000000000), <4 x float> %v285
  %v288 = fcmp ogt <4 x float> %v287, splat (float 0x4056400000000000)
  %v289 = select <4 x i1> %v288, <4 x float> splat (float 0x4056400000000000), <4 x float> %v287
  %v290 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v289, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v291 = fsub <4 x float> %v290, splat (float 0x4168000000000000)
  %v292 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v291, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v289)
  %v293 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v291, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v292)
  %v294 = fmul <4 x float> %v293, %v293
  %v295 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v293, <4 x float> splat (float 0x3F56D49200000000))
  %v296 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v295, <4 x float> %v293, <4 x float> splat (float 0x3F81110E00000000))
  %v297 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v296, <4 x float> %v293, <4 x float> splat (float 0x3FA5554E40000000))
  %v298 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v297, <4 x float> %v293, <4 x float> splat (float 0x3FC5555560000000))
  %v299 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v298, <4 x float> %v293, <4 x float> splat (float 0x3FE0000000000000))
  %v300 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v294, <4 x float> %v299, <4 x float> %v293)
  %v301 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v302 = bitcast <4 x float> %v290 to <4 x i32>
  %v303 = sub <4 x i32> %v302, %v301
  %v304 = ashr <4 x i32> %v303, splat (i32 1)
  %v305 = fadd <4 x float> %v300, splat (float 0x3FF0000000000000)
  %v306 = add <4 x i32> %v304, splat (i32 127)
  %v307 = shl <4 x i32> %v306, splat (i32 23)
  %v308 = bitcast <4 x i32> %v307 to <4 x float>
  %v309 = fmul <4 x float> %v305, %v308
  %v310 = sub <4 x i32> %v303, %v304
  %v311 = add <4 x i32> %v310, splat (i32 127)
  %v312 = shl <4 x i32> %v311, splat (i32 23)
  %v313 = bitcast <4 x i32> %v312 to <4 x float>
  %v314 = fmul <4 x float> %v309, %v313
  %v315 = select <4 x i1> %v286, <4 x float> splat (float 0x0000000000000000), <4 x float> %v314
  %v316 = add i64 %v279, 5
  %v317 = getelementptr float, ptr %v246, i64 %v316
  %v318 = load float, ptr %v317
  %v319 = extractelement <4 x float> %v315, i32 0
  %v320 = load float, ptr %s262
  %v321 = call float @llvm.fmuladd.f32(float %v318, float %v319, float %v320)
  store float %v321, ptr %s262
  %v322 = getelementptr float, ptr %v246, i64 %v279
  %v323 = load <4 x float>, ptr %v322, align 4
  %v324 = load <4 x float>, ptr %s2, align 4
  %v325 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v323, <4 x float> %v315, <4 x float> %v324)
  store <4 x float> %v325, ptr %s2, align 4
  %l278.next = add nuw nsw i64 %l278.i, 1
  %v326 = icmp slt i64 %l278.next, %v260
  br i1 %v326, label %l278.body, label %l278.end
l278.end:
  %v327 = load float, ptr %s262
  store float %v327, ptr %s5
  br label %w259.end
w259.end:
  br label %w244.end
w244.end:
  %v328 = load i1, ptr %s241
  br i1 %v328, label %w329.then, label %w329.end
w329.then:
  %v330 = load <4 x float>, ptr %s2, align 4
  %v331 = load float, ptr %s5
  %v332 = fdiv float 0x3FF0000000000000, %v331
  %v333 = insertelement <4 x float> poison, float %v332, i32 0
  %v334 = shufflevector <4 x float> %v333, <4 x float> poison, <4 x i32> zeroinitializer
  %v335 = fmul <4 x float> %v330, %v334
  store <4 x float> %v335, ptr %s2, align 4
  %v336 = load <4 x float>, ptr %s2, align 4
  %v337 = getelementptr float, ptr %p3, i64 %v27
  store <4 x float> %v336, ptr %v337, align 4
  br label %w329.end
w329.end:
  br label %w26.end
w26.end:
  %l7.next = add nuw nsw i64 %l7.i, 1
  %v338 = icmp slt i64 %l7.next, %last
  br i1 %v338, label %l7.body, label %l7.end
l7.end:
  ret void
}
