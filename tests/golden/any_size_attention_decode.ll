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
  %s71 = alloca <4 x float>
  %s72 = alloca <4 x float>
  %s73 = alloca <4 x float>
  %s74 = alloca <4 x float>
  %s131 = alloca <4 x float>
  %s132 = alloca <4 x float>
  %s271 = alloca <4 x float>
  %s310 = alloca i1
  %s352 = alloca float
  %s353 = alloca float
  %v7 = icmp slt i64 %first, %last
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ %first, %entry ], [ %l6.next, %w26.end ]
  %v8 = and i64 %size0, 4294967295
  %v9 = and i64 %l6.i, 2147483647
  %v10 = mul i64 %v9, %v8
  %v11 = lshr i64 %v10, %size1
  %v12 = mul i64 %v11, %size2
  %v13 = sub i64 %l6.i, %v12
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
  %v28 = icmp slt i64 0, 1
  br i1 %v28, label %l27.body, label %l27.end
l27.body:
  %l27.i = phi i64 [ 0, %w26.then ], [ %l27.next, %l39.end ]
  %v30 = icmp slt i64 0, 4
  br i1 %v30, label %l29.body, label %l29.end
l29.body:
  %l29.i = phi i64 [ 0, %l27.body ], [ %l29.next, %l29.body ]
  %v31 = mul i64 %v11, 4
  %v32 = add i64 %v31, %l29.i
  %v33 = getelementptr float, ptr %p0, i64 %v32
  %v34 = load <4 x float>, ptr %v33, align 4
  %v35 = mul i64 %l27.i, 4
  %v36 = add i64 %v35, %l29.i
  %v37 = getelementptr float, ptr %s1, i64 %v36
  store <4 x float> %v34, ptr %v37, align 4
  %l29.next = add nuw nsw i64 %l29.i, 4
  %v38 = icmp slt i64 %l29.next, 4
  br i1 %v38, label %l29.body, label %l29.end
l29.end:
  %v40 = icmp slt i64 0, 4
  br i1 %v40, label %l39.body, label %l39.end
l39.body:
  %l39.i = phi i64 [ 0, %l29.end ], [ %l39.next, %l39.body ]
  %v41 = mul i64 %l27.i, 4
  %v42 = add i64 %v41, %l39.i
  %v43 = getelementptr float, ptr %s2, i64 %v42
  store <4 x float> splat (float 0x0000000000000000), ptr %v43, align 4
  %l39.next = add nuw nsw i64 %l39.i, 4
  %v44 = icmp slt i64 %l39.next, 4
  br i1 %v44, label %l39.body, label %l39.end
l39.end:
  %v45 = getelementptr float, ptr %s4, i64 %l27.i
  store float 0xFFF0000000000000, ptr %v45
  %v46 = getelementptr float, ptr %s5, i64 %l27.i
  store float 0x0000000000000000, ptr %v46
  %l27.next = add nuw nsw i64 %l27.i, 1
  %v47 = icmp slt i64 %l27.next, 1
  br i1 %v47, label %l27.body, label %l27.end
l27.end:
  %v48 = add i64 %v22, %v21
  %v49 = call i64 @llvm.smin.i64(i64 %v48, i64 %size3)
  %v51 = icmp slt i64 %v22, %v49
  br i1 %v51, label %l50.body, label %l50.end
l50.body:
  %l50.i = phi i64 [ %v22, %l27.end ], [ %l50.next, %l269.end ]
  %v53 = icmp slt i64 0, 16
  br i1 %v53, label %l52.body, label %l52.end
l52.body:
  %l52.i = phi i64 [ 0, %l50.body ], [ %l52.next, %l75.end ]
  %v54 = add i64 %l50.i, %l52.i
  %v56 = icmp slt i64 0, 4
  br i1 %v56, label %l55.body, label %l55.end
l55.body:
  %l55.i = phi i64 [ 0, %l52.body ], [ %l55.next, %l55.body ]
  %v57 = add i64 %v54, %l55.i
  %v58 = mul i64 %v11, %size4
  %v59 = mul i64 %v57, 4
  %v60 = add i64 %v58, %v59
  %v61 = mul i64 %v60, 4
  %v62 = getelementptr i8, ptr %p2, i64 %v61
  call void @llvm.prefetch.p0(ptr %v62, i32 0, i32 2, i32 1)
  %l55.next = add nuw nsw i64 %l55.i, 1
  %v63 = icmp slt i64 %l55.next, 4
  br i1 %v63, label %l55.body, label %l55.end
l55.end:
  %v64 = add i64 %l50.i, %l52.i
  %v65 = add i64 %l50.i, %l52.i
  %v66 = add i64 %v65, 1
  %v67 = add i64 %l50.i, %l52.i
  %v68 = add i64 %v67, 2
  %v69 = add i64 %l50.i, %l52.i
  %v70 = add i64 %v69, 3
  store <4 x float> splat (float 0x0000000000000000), ptr %s71
  store <4 x float> splat (float 0x0000000000000000), ptr %s72
  store <4 x float> splat (float 0x0000000000000000), ptr %s73
  store <4 x float> splat (float 0x0000000000000000), ptr %s74
  %v76 = icmp slt i64 0, 4
  br i1 %v76, label %l75.body, label %l75.end
l75.body:
  %l75.i = phi i64 [ 0, %l55.end ], [ %l75.next, %l75.body ]
  %v77 = mul i64 %v11, %size4
  %v78 = mul i64 %v64, 4
  %v79 = add i64 %v77, %v78
  %v80 = add i64 %v79, %l75.i
  %v81 = getelementptr float, ptr %p1, i64 %v80
  %v82 = load <4 x float>, ptr %v81, align 4
  %v83 = mul i64 %v11, %size4
  %v84 = mul i64 %v66, 4
  %v85 = add i64 %v83, %v84
  %v86 = add i64 %v85, %l75.i
  %v87 = getelementptr float, ptr %p1, i64 %v86
  %v88 = load <4 x float>, ptr %v87, align 4
  %v89 = mul i64 %v11, %size4
  %v90 = mul i64 %v68, 4
  %v91 = add i64 %v89, %v90
  %v92 = add i64 %v91, %l75.i
  %v93 = getelementptr float, ptr %p1, i64 %v92
  %v94 = load <4 x float>, ptr %v93, align 4
  %v95 = mul i64 %v11, %size4
  %v96 = mul i64 %v70, 4
  %v97 = add i64 %v95, %v96
  %v98 = add i64 %v97, %l75.i
  %v99 = getelementptr float, ptr %p1, i64 %v98
  %v100 = load <4 x float>, ptr %v99, align 4
  %v101 = getelementptr float, ptr %s1, i64 %l75.i
  %v102 = load <4 x float>, ptr %v101, align 4
  %v103 = load <4 x float>, ptr %s71
  %v104 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v82, <4 x float> %v102, <4 x float> %v103)
  store <4 x float> %v104, ptr %s71
  %v105 = load <4 x float>, ptr %s72
  %v106 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v88, <4 x float> %v102, <4 x float> %v105)
  store <4 x float> %v106, ptr %s72
  %v107 = load <4 x float>, ptr %s73
  %v108 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v94, <4 x float> %v102, <4 x float> %v107)
  store <4 x float> %v108, ptr %s73
  %v109 = load <4 x float>, ptr %s74
  %v110 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v100, <4 x float> %v102, <4 x float> %v109)
  store <4 x float> %v110, ptr %s74
  %l75.next = add nuw nsw i64 %l75.i, 4
  %v111 = icmp slt i64 %l75.next, 4
  br i1 %v111, label %l75.body, label %l75.end
l75.end:
  %v112 = load <4 x float>, ptr %s71
  %v113 = load <4 x float>, ptr %s72
  %v114 = load <4 x float>, ptr %s73
  %v115 = load <4 x float>, ptr %s74
  %v116 = shufflevector <4 x float> %v112, <4 x float> %v113, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v117 = shufflevector <4 x float> %v112, <4 x float> %v113, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v118 = fadd <4 x float> %v116, %v117
  %v119 = shufflevector <4 x float> %v114, <4 x float> %v115, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v120 = shufflevector <4 x float> %v114, <4 x float> %v115, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v121 = fadd <4 x float> %v119, %v120
  %v122 = shufflevector <4 x float> %v118, <4 x float> %v121, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v123 = shufflevector <4 x float> %v118, <4 x float> %v121, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v124 = fadd <4 x float> %v122, %v123
  %v125 = getelementptr float, ptr %s3, i64 %l52.i
  store <4 x float> %v124, ptr %v125, align 4
  %l52.next = add nuw nsw i64 %l52.i, 4
  %v126 = icmp slt i64 %l52.next, 16
  br i1 %v126, label %l52.body, label %l52.end
l52.end:
  %v128 = icmp slt i64 0, 1
  br i1 %v128, label %l127.body, label %l127.end
l127.body:
  %l127.i = phi i64 [ 0, %l52.end ], [ %l127.next, %l257.end ]
  %v129 = getelementptr float, ptr %s4, i64 %l127.i
  %v130 = load float, ptr %v129
  %v133 = insertelement <4 x float> poison, float %v130, i32 0
  %v134 = shufflevector <4 x float> %v133, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %v134, ptr %s131
  %v136 = icmp slt i64 0, 16
  br i1 %v136, label %l135.body, label %l135.end
l135.body:
  %l135.i = phi i64 [ 0, %l127.body ], [ %l135.next, %l135.body ]
  %v137 = mul i64 %l127.i, 20
  %v138 = add i64 %v137, %l135.i
  %v139 = add i64 %l50.i, %l135.i
  %v140 = getelementptr float, ptr %s3, i64 %v138
  %v141 = load <4 x float>, ptr %v140, align 4
  %v142 = fmul contract <4 x float> %v141, splat (float 0x3FE0000000000000)
  %v143 = load <4 x float>, ptr %s131
  %v144 = fcmp ogt <4 x float> %v142, %v143
  %v145 = load <4 x float>, ptr %s131
  %v146 = select <4 x i1> %v144, <4 x float> %v142, <4 x float> %v145
  store <4 x float> %v146, ptr %s131
  %v147 = getelementptr float, ptr %s3, i64 %v138
  store <4 x float> %v142, ptr %v147, align 4
  %l135.next = add nuw nsw i64 %l135.i, 4
  %v148 = icmp slt i64 %l135.next, 16
  br i1 %v148, label %l135.body, label %l135.end
l135.end:
  %v149 = load <4 x float>, ptr %s131
  %v150 = shufflevector <4 x float> %v149, <4 x float> %v149, <2 x i32> <i32 0, i32 1>
  %v151 = shufflevector <4 x float> %v149, <4 x float> %v149, <2 x i32> <i32 2, i32 3>
  %v152 = fcmp ogt <2 x float> %v150, %v151
  %v153 = fcmp uno <2 x float> %v150, %v150
  %v154 = select <2 x i1> %v152, <2 x float> %v150, <2 x float> %v151
  %v155 = select <2 x i1> %v153, <2 x float> %v150, <2 x float> %v154
  %v156 = shufflevector <2 x float> %v155, <2 x float> %v155, <1 x i32> <i32 0>
  %v157 = shufflevector <2 x float> %v155, <2 x float> %v155, <1 x i32> <i32 1>
  %v158 = fcmp ogt <1 x float> %v156, %v157
  %v159 = fcmp uno <1 x float> %v156, %v156
  %v160 = select <1 x i1> %v158, <1 x float> %v156, <1 x float> %v157
  %v161 = select <1 x i1> %v159, <1 x float> %v156, <1 x float> %v160
  %v162 = extractelement <1 x float> %v161, i32 0
  %v163 = getelementptr float, ptr %s4, i64 %l127.i
  store float %v162, ptr %v163
  %v164 = fcmp oeq float %v162, 0xFFF0000000000000
  %v165 = select i1 %v164, float 0x0000000000000000, float %v162
  %v166 = fsub float %v130, %v165
  %v167 = insertelement <4 x float> poison, float %v166, i32 0
  %v168 = shufflevector <4 x float> %v167, <4 x float> poison, <4 x i32> zeroinitializer
  %v169 = fcmp olt <4 x float> %v168, splat (float 0xC05A000000000000)
  %v170 = select <4 x i1> %v169, <4 x float> splat (float 0x0000000000000000), <4 x float> %v168
  %v171 = fcmp ogt <4 x float> %v170, splat (float 0x4056400000000000)
  %v172 = select <4 x i1> %v171, <4 x float> splat (float 0x4056400000000000), <4 x float> %v170
  %v173 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v172, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v174 = fsub <4 x float> %v173, splat (float 0x4168000000000000)
  %v175 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v174, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v172)
  %v176 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v174, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v175)
  %v177 = fmul <4 x float> %v176, %v176
  %v178 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v176, <4 x float> splat (float 0x3F56D49200000000))
  %v179 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v178, <4 x float> %v176, <4 x float> splat (float 0x3F81110E00000000))
  %v180 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v179, <4 x float> %v176, <4 x float> splat (float 0x3FA5554E40000000))
  %v181 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v180, <4 x float> %v176, <4 x float> splat (float 0x3FC5555560000000))
  %v182 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v181, <4 x float> %v176, <4 x float> splat (float 0x3FE0000000000000))
  %v183 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v177, <4 x float> %v182, <4 x float> %v176)
  %v184 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v185 = bitcast <4 x float> %v173 to <4 x i32>
  %v186 = sub <4 x i32> %v185, %v184
  %v187 = ashr <4 x i32> %v186, splat (i32 1)
  %v188 = fadd <4 x float> %v183, splat (float 0x3FF0000000000000)
  %v189 = add <4 x i32> %v187, splat (i32 127)
  %v190 = shl <4 x i32> %v189, splat (i32 23)
  %v191 = bitcast <4 x i32> %v190 to <4 x float>
  %v192 = fmul <4 x float> %v188, %v191
  %v193 = sub <4 x i32> %v186, %v187
  %v194 = add <4 x i32> %v193, splat (i32 127)
  %v195 = shl <4 x i32> %v194, splat (i32 23)
  %v196 = bitcast <4 x i32> %v195 to <4 x float>
  %v197 = fmul <4 x float> %v192, %v196
  %v198 = select <4 x i1> %v169, <4 x float> splat (float 0x0000000000000000), <4 x float> %v197
  %v199 = extractelement <4 x float> %v198, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s132
  %v201 = icmp slt i64 0, 16
  br i1 %v201, label %l200.body, label %l200.end
l200.body:
  %l200.i = phi i64 [ 0, %l135.end ], [ %l200.next, %l200.body ]
  %v202 = mul i64 %l127.i, 20
  %v203 = add i64 %v202, %l200.i
  %v204 = add i64 %l50.i, %l200.i
  %v205 = getelementptr float, ptr %s3, i64 %v203
  %v206 = load <4 x float>, ptr %v205, align 4
  %v207 = insertelement <4 x float> poison, float %v165, i32 0
  %v208 = shufflevector <4 x float> %v207, <4 x float> poison, <4 x i32> zeroinitializer
  %v209 = fsub <4 x float> %v206, %v208
  %v210 = fcmp olt <4 x float> %v209, splat (float 0xC05A000000000000)
  %v211 = select <4 x i1> %v210, <4 x float> splat (float 0x0000000000000000), <4 x float> %v209
  %v212 = fcmp ogt <4 x float> %v211, splat (float 0x4056400000000000)
  %v213 = select <4 x i1> %v212, <4 x float> splat (float 0x4056400000000000), <4 x float> %v211
  %v214 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v213, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v215 = fsub <4 x float> %v214, splat (float 0x4168000000000000)
  %v216 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v215, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v213)
  %v217 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v215, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v216)
  %v218 = fmul <4 x float> %v217, %v217
  %v219 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v217, <4 x float> splat (float 0x3F56D49200000000))
  %v220 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v219, <4 x float> %v217, <4 x float> splat (float 0x3F81110E00000000))
  %v221 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v220, <4 x float> %v217, <4 x float> splat (float 0x3FA5554E40000000))
  %v222 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v221, <4 x float> %v217, <4 x float> splat (float 0x3FC5555560000000))
  %v223 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v222, <4 x float> %v217, <4 x float> splat (float 0x3FE0000000000000))
  %v224 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v218, <4 x float> %v223, <4 x float> %v217)
  %v225 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v226 = bitcast <4 x float> %v214 to <4 x i32>
  %v227 = sub <4 x i32> %v226, %v225
  %v228 = ashr <4 x i32> %v227, splat (i32 1)
  %v229 = fadd <4 x float> %v224, splat (float 0x3FF0000000000000)
  %v230 = add <4 x i32> %v228, splat (i32 127)
  %v231 = shl <4 x i32> %v230, splat (i32 23)
  %v232 = bitcast <4 x i32> %v231 to <4 x float>
  %v233 = fmul <4 x float> %v229, %v232
  %v234 = sub <4 x i32> %v227, %v228
  %v235 = add <4 x i32> %v234, splat (i32 127)
  %v236 = shl <4 x i32> %v235, splat (i32 23)
  %v237 = bitcast <4 x i32> %v236 to <4 x float>
  %v238 = fmul <4 x float> %v233, %v237
  %v239 = select <4 x i1> %v210, <4 x float> splat (float 0x0000000000000000), <4 x float> %v238
  %v240 = getelementptr float, ptr %s3, i64 %v203
  store <4 x float> %v239, ptr %v240, align 4
  %v241 = load <4 x float>, ptr %s132
  %v242 = fadd <4 x float> %v241, %v239
  store <4 x float> %v242, ptr %s132
  %l200.next = add nuw nsw i64 %l200.i, 4
  %v243 = icmp slt i64 %l200.next, 16
  br i1 %v243, label %l200.body, label %l200.end
l200.end:
  %v244 = getelementptr float, ptr %s5, i64 %l127.i
  %v245 = load float, ptr %v244
  %v246 = fmul float %v245, %v199
  %v247 = load <4 x float>, ptr %s132
  %v248 = shufflevector <4 x float> %v247, <4 x float> %v247, <2 x i32> <i32 0, i32 1>
  %v249 = shufflevector <4 x float> %v247, <4 x float> %v247, <2 x i32> <i32 2, i32 3>
  %v250 = fadd contract <2 x float> %v248, %v249
  %v251 = shufflevector <2 x float> %v250, <2 x float> %v250, <1 x i32> <i32 0>
  %v252 = shufflevector <2 x float> %v250, <2 x float> %v250, <1 x i32> <i32 1>
  %v253 = fadd contract <1 x float> %v251, %v252
  %v254 = extractelement <1 x float> %v253, i32 0
  %v255 = fadd float %v246, %v254
  %v256 = getelementptr float, ptr %s5, i64 %l127.i
  store float %v255, ptr %v256
  %v258 = icmp slt i64 0, 4
  br i1 %v258, label %l257.body, label %l257.end
l257.body:
  %l257.i = phi i64 [ 0, %l200.end ], [ %l257.next, %l257.body ]
  %v259 = mul i64 %l127.i, 4
  %v260 = add i64 %v259, %l257.i
  %v261 = getelementptr float, ptr %s2, i64 %v260
  %v262 = load <4 x float>, ptr %v261, align 4
  %v263 = insertelement <4 x float> poison, float %v199, i32 0
  %v264 = shufflevector <4 x float> %v263, <4 x float> poison, <4 x i32> zeroinitializer
  %v265 = fmul <4 x float> %v262, %v264
  %v266 = getelementptr float, ptr %s2, i64 %v260
  store <4 x float> %v265, ptr %v266, align 4
  %l257.next = add nuw nsw i64 %l257.i, 4
  %v267 = icmp slt i64 %l257.next, 4
  br i1 %v267, label %l257.body, label %l257.end
l257.end:
  %l127.next = add nuw nsw i64 %l127.i, 1
  %v268 = icmp slt i64 %l127.next, 1
  br i1 %v268, label %l127.body, label %l127.end
l127.end:
  %v270 = icmp slt i64 0, 4
  br i1 %v270, label %l269.body, label %l269.end
l269.body:
  %l269.i = phi i64 [ 0, %l127.end ], [ %l269.next, %l278.end ]
  %v272 = getelementptr float, ptr %s2, i64 %l269.i
  %v273 = load <4 x float>, ptr %v272, align 4
  store <4 x float> %v273, ptr %s271
  %v274 = icmp eq i64 %l269.i, 0
  %v275 = add i64 %l50.i, 16
  %v276 = icmp slt i64 %v275, %v49
  %v277 = and i1 %v274, %v276
  %v279 = icmp slt i64 0, 16
  br i1 %v279, label %l278.body, label %l278.end
l278.body:
  %l278.i = phi i64 [ 0, %l269.body ], [ %l278.next, %w280.end ]
  br i1 %v277, label %w280.then, label %w280.end
w280.then:
  %v281 = add i64 %l50.i, %l278.i
  %v282 = add i64 %v281, 16
  %v284 = icmp slt i64 0, 1
  br i1 %v284, label %l283.body, label %l283.end
l283.body:
  %l283.i = phi i64 [ 0, %w280.then ], [ %l283.next, %l283.body ]
  %v285 = add i64 %v282, %l283.i
  %v286 = mul i64 %v11, %size4
  %v287 = mul i64 %v285, 4
  %v288 = add i64 %v286, %v287
  %v289 = mul i64 %v288, 4
  %v290 = getelementptr i8, ptr %p1, i64 %v289
  call void @llvm.prefetch.p0(ptr %v290, i32 0, i32 2, i32 1)
  %l283.next = add nuw nsw i64 %l283.i, 1
  %v291 = icmp slt i64 %l283.next, 1
  br i1 %v291, label %l283.body, label %l283.end
l283.end:
  br label %w280.end
w280.end:
  %v292 = add i64 %l50.i, %l278.i
  %v293 = mul i64 %v11, %size4
  %v294 = mul i64 %v292, 4
  %v295 = add i64 %v293, %v294
  %v296 = add i64 %v295, %l269.i
  %v297 = getelementptr float, ptr %p2, i64 %v296
  %v298 = load <4 x float>, ptr %v297, align 4
  %v299 = getelementptr float, ptr %s3, i64 %l278.i
  %v300 = load float, ptr %v299
  %v301 = insertelement <4 x float> poison, float %v300, i32 0
  %v302 = shufflevector <4 x float> %v301, <4 x float> poison, <4 x i32> zeroinitializer
  %v303 = load <4 x float>, ptr %s271
  %v304 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v302, <4 x float> %v298, <4 x float> %v303)
  store <4 x float> %v304, ptr %s271
  %l278.next = add nuw nsw i64 %l278.i, 1
  %v305 = icmp slt i64 %l278.next, 16
  br i1 %v305, label %l278.body, label %l278.end
l278.end:
  %v306 = load <4 x float>, ptr %s271
  %v307 = getelementptr float, ptr %s2, i64 %l269.i
  store <4 x float> %v306, ptr %v307, align 4
  %l269.next = add nuw nsw i64 %l269.i, 4
  %v308 = icmp slt i64 %l269.next, 4
  br i1 %v308, label %l269.body, label %l269.end
l269.end:
  %l50.next = add nuw nsw i64 %l50.i, 16
  %v309 = icmp slt i64 %l50.next, %v49
  br i1 %v309, label %l50.body, label %l50.end
l50.end:
  %v311 = icmp sle i64 %size3, %v21
  store i1 %v311, ptr %s310
  %v312 = icmp sgt i64 %size3, %v21
  br i1 %v312, label %w313.then, label %w313.end
w313.then:
  %v314 = mul i64 %v11, %size2
  %v315 = mul i64 %v314, 32
  %v316 = getelementptr float, ptr %workspace, i64 %v315
  %v317 = mul i64 %v13, 32
  %v318 = getelementptr float, ptr %v316, i64 %v317
  %v320 = icmp slt i64 0, 1
  br i1 %v320, label %l319.body, label %l319.end
l319.body:
  %l319.i = phi i64 [ 0, %w313.then ], [ %l319.next, %l321.end ]
  %v322 = icmp slt i64 0, 4
  br i1 %v322, label %l321.body, label %l321.end
l321.body:
  %l321.i = phi i64 [ 0, %l319.body ], [ %l321.next, %l321.body ]
  %v323 = mul i64 %l319.i, 4
  %v324 = add i64 %v323, %l321.i
  %v325 = getelementptr float, ptr %s2, i64 %v324
  %v326 = load <4 x float>, ptr %v325, align 4
  %v327 = mul i64 %l319.i, 4
  %v328 = add i64 %v327, %l321.i
  %v329 = getelementptr float, ptr %v318, i64 %v328
  store <4 x float> %v326, ptr %v329, align 4
  %l321.next = add nuw nsw i64 %l321.i, 4
  %v330 = icmp slt i64 %l321.next, 4
  br i1 %v330, label %l321.body, label %l321.end
l321.end:
  %l319.next = add nuw nsw i64 %l319.i, 1
  %v331 = icmp slt i64 %l319.next, 1
  br i1 %v331, label %l319.body, label %l319.end
l319.end:
  %v333 = icmp slt i64 0, 1
  br i1 %v333, label %l332.body, label %l332.end
l332.body:
  %l332.i = phi i64 [ 0, %l319.end ], [ %l332.next, %l332.body ]
  %v334 = getelementptr float, ptr %s4, i64 %l332.i
  %v335 = load float, ptr %v334
  %v336 = add i64 %l332.i, 4
  %v337 = getelementptr float, ptr %v318, i64 %v336
  store float %v335, ptr %v337
  %v338 = getelementptr float, ptr %s5, i64 %l332.i
  %v339 = load float, ptr %v338
  %v340 = add i64 %l332.i, 5
  %v341 = getelementptr float, ptr %v318, i64 %v340
  store float %v339, ptr %v341
  %l332.next = add nuw nsw i64 %l332.i, 1
  %v342 = icmp slt i64 %l332.next, 1
  br i1 %v342, label %l332.body, label %l332.end
l332.end:
  %v343 = sub i64 %size3, 1
  %v344 = udiv i64 %v343, %v21
  %v345 = getelementptr i64, ptr %counters, i64 %v11
  %v346 = atomicrmw add ptr %v345, i64 1 acq_rel, align 8
  %v347 = icmp eq i64 %v346, %v344
  store i1 %v347, ptr %s310
  br i1 %v347, label %w348.then, label %w348.end
w348.then:
  store i64 0, ptr %v345, align 8
  %v349 = add i64 %v344, 1
  %v351 = icmp slt i64 0, 1
  br i1 %v351, label %l350.body, label %l350.end
l350.body:
  %l350.i = phi i64 [ 0, %w348.then ], [ %l350.next, %l376.end ]
  store float 0xFFF0000000000000, ptr %s352
  %v355 = icmp slt i64 0, %v349
  br i1 %v355, label %l354.body, label %l354.end
l354.body:
  %l354.i = phi i64 [ 0, %l350.body ], [ %l354.next, %l354.body ]
  %v356 = add i64 %l350.i, 4
  %v357 = mul i64 %l354.i, 32
  %v358 = add i64 %v357, %v356
  %v359 = getelementptr float, ptr %v316, i64 %v358
  %v360 = load float, ptr %v359
  %v361 = load float, ptr %s352
  %v362 = fcmp ogt float %v360, %v361
  %v363 = load float, ptr %s352
  %v364 = select i1 %v362, float %v360, float %v363
  store float %v364, ptr %s352
  %l354.next = add nuw nsw i64 %l354.i, 1
  %v365 = icmp slt i64 %l354.next, %v349
  br i1 %v365, label %l354.body, label %l354.end
l354.end:
  %v366 = load float, ptr %s352
  %v367 = fcmp oeq float %v366, 0xFFF0000000000000
  %v368 = load float, ptr %s352
  %v369 = select i1 %v367, float 0x0000000000000000, float %v368
  store float 0x0000000000000000, ptr %s353
  %v371 = icmp slt i64 0, 4
  br i1 %v371, label %l370.body, label %l370.end
l370.body:
  %l370.i = phi i64 [ 0, %l354.end ], [ %l370.next, %l370.body ]
  %v372 = mul i64 %l350.i, 4
  %v373 = add i64 %v372, %l370.i
  %v374 = getelementptr float, ptr %s2, i64 %v373
  store <4 x float> splat (float 0x0000000000000000), ptr %v374, align 4
  %l370.next = add nuw nsw i64 %l370.i, 4
  %v375 = icmp slt i64 %l370.next, 4
  br i1 %v375, label %l370.body, label %l370.end
l370.end:
  %v377 = icmp slt i64 0, %v349
  br i1 %v377, label %l376.body, label %l376.end
l376.body:
  %l376.i = phi i64 [ 0, %l370.end ], [ %l376.next, %l424.end ]
  %v378 = add i64 %l350.i, 4
  %v379 = mul i64 %l376.i, 32
  %v380 = add i64 %v379, %v378
  %v381 = getelementptr float, ptr %v316, i64 %v380
  %v382 = load float, ptr %v381
  %v383 = fsub float %v382, %v369
  %v384 = insertelement <4 x float> poison, float %v383, i32 0
  %v385 = shufflevector <4 x float> %v384, <4 x float> poison, <4 x i32> zeroinitializer
  %v386 = fcmp olt <4 x float> %v385, splat (float 0xC05A000000000000)
  %v387 = select <4 x i1> %v386, <4 x float> splat (float 0x0000000000000000), <4 x float> %v385
  %v388 = fcmp ogt <4 x float> %v387, splat (float 0x4056400000000000)
  %v389 = select <4 x i1> %v388, <4 x float> splat (float 0x4056400000000000), <4 x float> %v387
  %v390 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v389, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v391 = fsub <4 x float> %v390, splat (float 0x4168000000000000)
  %v392 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v391, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v389)
  %v393 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v391, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v392)
  %v394 = fmul <4 x float> %v393, %v393
  %v395 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v393, <4 x float> splat (float 0x3F56D49200000000))
  %v396 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v395, <4 x float> %v393, <4 x float> splat (float 0x3F81110E00000000))
  %v397 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v396, <4 x float> %v393, <4 x float> splat (float 0x3FA5554E40000000))
  %v398 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v397, <4 x float> %v393, <4 x float> splat (float 0x3FC5555560000000))
  %v399 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v398, <4 x float> %v393, <4 x float> splat (float 0x3FE0000000000000))
  %v400 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v394, <4 x float> %v399, <4 x float> %v393)
  %v401 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v402 = bitcast <4 x float> %v390 to <4 x i32>
  %v403 = sub <4 x i32> %v402, %v401
  %v404 = ashr <4 x i32> %v403, splat (i32 1)
  %v405 = fadd <4 x float> %v400, splat (float 0x3FF0000000000000)
  %v406 = add <4 x i32> %v404, splat (i32 127)
  %v407 = shl <4 x i32> %v406, splat (i32 23)
  %v408 = bitcast <4 x i32> %v407 to <4 x float>
  %v409 = fmul <4 x float> %v405, %v408
  %v410 = sub <4 x i32> %v403, %v404
  %v411 = add <4 x i32> %v410, splat (i32 127)
  %v412 = shl <4 x i32> %v411, splat (i32 23)
  %v413 = bitcast <4 x i32> %v412 to <4 x float>
  %v414 = fmul <4 x float> %v409, %v413
  %v415 = select <4 x i1> %v386, <4 x float> splat (float 0x0000000000000000), <4 x float> %v414
  %v416 = add i64 %l350.i, 5
  %v417 = mul i64 %l376.i, 32
  %v418 = add i64 %v417, %v416
  %v419 = getelementptr float, ptr %v316, i64 %v418
  %v420 = load float, ptr %v419
  %v421 = extractelement <4 x float> %v415, i32 0
  %v422 = load float, ptr %s353
  %v423 = call float @llvm.fmuladd.f32(float %v420, float %v421, float %v422)
  store float %v423, ptr %s353
  %v425 = icmp slt i64 0, 4
  br i1 %v425, label %l424.body, label %l424.end
l424.body:
  %l424.i = phi i64 [ 0, %l376.body ], [ %l424.next, %l424.body ]
  %v426 = mul i64 %l350.i, 4
  %v427 = add i64 %v426, %l424.i
  %v428 = mul i64 %l376.i, 32
  %v429 = add i64 %v428, %v427
  %v430 = getelementptr float, ptr %v316, i64 %v429
  %v431 = load <4 x float>, ptr %v430, align 4
  %v432 = getelementptr float, ptr %s2, i64 %v427
  %v433 = load <4 x float>, ptr %v432, align 4
  %v434 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v431, <4 x float> %v415, <4 x float> %v433)
  %v435 = getelementptr float, ptr %s2, i64 %v427
  store <4 x float> %v434, ptr %v435, align 4
  %l424.next = add nuw nsw i64 %l424.i, 4
  %v436 = icmp slt i64 %l424.next, 4
  br i1 %v436, label %l424.body, label %l424.end
l424.end:
  %l376.next = add nuw nsw i64 %l376.i, 1
  %v437 = icmp slt i64 %l376.next, %v349
  br i1 %v437, label %l376.body, label %l376.end
l376.end:
  %v438 = load float, ptr %s353
  %v439 = getelementptr float, ptr %s5, i64 %l350.i
  store float %v438, ptr %v439
  %l350.next = add nuw nsw i64 %l350.i, 1
  %v440 = icmp slt i64 %l350.next, 1
  br i1 %v440, label %l350.body, label %l350.end
l350.end:
  br label %w348.end
w348.end:
  br label %w313.end
w313.end:
  %v441 = load i1, ptr %s310
  br i1 %v441, label %w442.then, label %w442.end
w442.then:
  %v444 = icmp slt i64 0, 1
  br i1 %v444, label %l443.body, label %l443.end
l443.body:
  %l443.i = phi i64 [ 0, %w442.then ], [ %l443.next, %l445.end ]
  %v446 = icmp slt i64 0, 4
  br i1 %v446, label %l445.body, label %l445.end
l445.body:
  %l445.i = phi i64 [ 0, %l443.body ], [ %l445.next, %l445.body ]
  %v447 = mul i64 %l443.i, 4
  %v448 = add i64 %v447, %l445.i
  %v449 = getelementptr float, ptr %s2, i64 %v448
  %v450 = load <4 x float>, ptr %v449, align 4
  %v451 = getelementptr float, ptr %s5, i64 %l443.i
  %v452 = load float, ptr %v451
  %v453 = fdiv float 0x3FF0000000000000, %v452
  %v454 = insertelement <4 x float> poison, float %v453, i32 0
  %v455 = shufflevector <4 x float> %v454, <4 x float> poison, <4 x i32> zeroinitializer
  %v456 = fmul <4 x float> %v450, %v455
  %v457 = getelementptr float, ptr %s2, i64 %v448
  store <4 x float> %v456, ptr %v457, align 4
  %l445.next = add nuw nsw i64 %l445.i, 4
  %v458 = icmp slt i64 %l445.next, 4
  br i1 %v458, label %l445.body, label %l445.end
l445.end:
  %l443.next = add nuw nsw i64 %l443.i, 1
  %v459 = icmp slt i64 %l443.next, 1
  br i1 %v459, label %l443.body, label %l443.end
l443.end:
  %v461 = icmp slt i64 0, 1
  br i1 %v461, label %l460.body, label %l460.end
l460.body:
  %l460.i = phi i64 [ 0, %l443.end ], [ %l460.next, %l462.end ]
  %v463 = icmp slt i64 0, 4
  br i1 %v463, label %l462.body, label %l462.end
l462.body:
  %l462.i = phi i64 [ 0, %l460.body ], [ %l462.next, %l462.body ]
  %v464 = mul i64 %l460.i, 4
  %v465 = add i64 %v464, %l462.i
  %v466 = getelementptr float, ptr %s2, i64 %v465
  %v467 = load <4 x float>, ptr %v466, align 4
  %v468 = mul i64 %v11, 4
  %v469 = add i64 %v468, %l462.i
  %v470 = getelementptr float, ptr %p3, i64 %v469
  store <4 x float> %v467, ptr %v470, align 4
  %l462.next = add nuw nsw i64 %l462.i, 4
  %v471 = icmp slt i64 %l462.next, 4
  br i1 %v471, label %l462.body, label %l462.end
l462.end:
  %l460.next = add nuw nsw i64 %l460.i, 1
  %v472 = icmp slt i64 %l460.next, 1
  br i1 %v472, label %l460.body, label %l460.end
l460.end:
  br label %w442.end
w442.end:
  br label %w26.end
w26.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v473 = icmp slt i64 %l6.next, %last
  br i1 %v473, label %l6.body, label %l6.end
l6.end:
  ret void
}
