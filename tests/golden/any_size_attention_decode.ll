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
  %s73 = alloca <4 x float>
  %s74 = alloca <4 x float>
  %s75 = alloca <4 x float>
  %s76 = alloca <4 x float>
  %s138 = alloca <4 x float>
  %s139 = alloca <4 x float>
  %s278 = alloca <4 x float>
  %s317 = alloca i1
  %s359 = alloca float
  %s360 = alloca float
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
  %l50.i = phi i64 [ %v22, %l27.end ], [ %l50.next, %l276.end ]
  %v53 = icmp slt i64 0, 16
  br i1 %v53, label %l52.body, label %l52.end
l52.body:
  %l52.i = phi i64 [ 0, %l50.body ], [ %l52.next, %l64.end ]
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
  %v65 = icmp slt i64 0, 1
  br i1 %v65, label %l64.body, label %l64.end
l64.body:
  %l64.i = phi i64 [ 0, %l55.end ], [ %l64.next, %l77.end ]
  %v66 = add i64 %l50.i, %l52.i
  %v67 = add i64 %l50.i, %l52.i
  %v68 = add i64 %v67, 1
  %v69 = add i64 %l50.i, %l52.i
  %v70 = add i64 %v69, 2
  %v71 = add i64 %l50.i, %l52.i
  %v72 = add i64 %v71, 3
  store <4 x float> splat (float 0x0000000000000000), ptr %s73
  store <4 x float> splat (float 0x0000000000000000), ptr %s74
  store <4 x float> splat (float 0x0000000000000000), ptr %s75
  store <4 x float> splat (float 0x0000000000000000), ptr %s76
  %v78 = icmp slt i64 0, 4
  br i1 %v78, label %l77.body, label %l77.end
l77.body:
  %l77.i = phi i64 [ 0, %l64.body ], [ %l77.next, %l77.body ]
  %v79 = mul i64 %l64.i, 4
  %v80 = add i64 %v79, %l77.i
  %v81 = getelementptr float, ptr %s1, i64 %v80
  %v82 = load <4 x float>, ptr %v81, align 4
  %v83 = mul i64 %v11, %size4
  %v84 = mul i64 %v66, 4
  %v85 = add i64 %v83, %v84
  %v86 = add i64 %v85, %l77.i
  %v87 = getelementptr float, ptr %p1, i64 %v86
  %v88 = load <4 x float>, ptr %v87, align 4
  %v89 = load <4 x float>, ptr %s73
  %v90 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v88, <4 x float> %v82, <4 x float> %v89)
  store <4 x float> %v90, ptr %s73
  %v91 = mul i64 %v11, %size4
  %v92 = mul i64 %v68, 4
  %v93 = add i64 %v91, %v92
  %v94 = add i64 %v93, %l77.i
  %v95 = getelementptr float, ptr %p1, i64 %v94
  %v96 = load <4 x float>, ptr %v95, align 4
  %v97 = load <4 x float>, ptr %s74
  %v98 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v96, <4 x float> %v82, <4 x float> %v97)
  store <4 x float> %v98, ptr %s74
  %v99 = mul i64 %v11, %size4
  %v100 = mul i64 %v70, 4
  %v101 = add i64 %v99, %v100
  %v102 = add i64 %v101, %l77.i
  %v103 = getelementptr float, ptr %p1, i64 %v102
  %v104 = load <4 x float>, ptr %v103, align 4
  %v105 = load <4 x float>, ptr %s75
  %v106 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v104, <4 x float> %v82, <4 x float> %v105)
  store <4 x float> %v106, ptr %s75
  %v107 = mul i64 %v11, %size4
  %v108 = mul i64 %v72, 4
  %v109 = add i64 %v107, %v108
  %v110 = add i64 %v109, %l77.i
  %v111 = getelementptr float, ptr %p1, i64 %v110
  %v112 = load <4 x float>, ptr %v111, align 4
  %v113 = load <4 x float>, ptr %s76
  %v114 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v112, <4 x float> %v82, <4 x float> %v113)
  store <4 x float> %v114, ptr %s76
  %l77.next = add nuw nsw i64 %l77.i, 4
  %v115 = icmp slt i64 %l77.next, 4
  br i1 %v115, label %l77.body, label %l77.end
l77.end:
  %v116 = load <4 x float>, ptr %s73
  %v117 = load <4 x float>, ptr %s74
  %v118 = load <4 x float>, ptr %s75
  %v119 = load <4 x float>, ptr %s76
  %v120 = shufflevector <4 x float> %v116, <4 x float> %v117, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v121 = shufflevector <4 x float> %v116, <4 x float> %v117, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v122 = fadd <4 x float> %v120, %v121
  %v123 = shufflevector <4 x float> %v118, <4 x float> %v119, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v124 = shufflevector <4 x float> %v118, <4 x float> %v119, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v125 = fadd <4 x float> %v123, %v124
  %v126 = shufflevector <4 x float> %v122, <4 x float> %v125, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v127 = shufflevector <4 x float> %v122, <4 x float> %v125, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v128 = fadd <4 x float> %v126, %v127
  %v129 = mul i64 %l64.i, 20
  %v130 = add i64 %v129, %l52.i
  %v131 = getelementptr float, ptr %s3, i64 %v130
  store <4 x float> %v128, ptr %v131, align 4
  %l64.next = add nuw nsw i64 %l64.i, 1
  %v132 = icmp slt i64 %l64.next, 1
  br i1 %v132, label %l64.body, label %l64.end
l64.end:
  %l52.next = add nuw nsw i64 %l52.i, 4
  %v133 = icmp slt i64 %l52.next, 16
  br i1 %v133, label %l52.body, label %l52.end
l52.end:
  %v135 = icmp slt i64 0, 1
  br i1 %v135, label %l134.body, label %l134.end
l134.body:
  %l134.i = phi i64 [ 0, %l52.end ], [ %l134.next, %l264.end ]
  %v136 = getelementptr float, ptr %s4, i64 %l134.i
  %v137 = load float, ptr %v136
  %v140 = insertelement <4 x float> poison, float %v137, i32 0
  %v141 = shufflevector <4 x float> %v140, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %v141, ptr %s138
  %v143 = icmp slt i64 0, 16
  br i1 %v143, label %l142.body, label %l142.end
l142.body:
  %l142.i = phi i64 [ 0, %l134.body ], [ %l142.next, %l142.body ]
  %v144 = mul i64 %l134.i, 20
  %v145 = add i64 %v144, %l142.i
  %v146 = add i64 %l50.i, %l142.i
  %v147 = getelementptr float, ptr %s3, i64 %v145
  %v148 = load <4 x float>, ptr %v147, align 4
  %v149 = fmul contract <4 x float> %v148, splat (float 0x3FE0000000000000)
  %v150 = load <4 x float>, ptr %s138
  %v151 = fcmp ogt <4 x float> %v149, %v150
  %v152 = load <4 x float>, ptr %s138
  %v153 = select <4 x i1> %v151, <4 x float> %v149, <4 x float> %v152
  store <4 x float> %v153, ptr %s138
  %v154 = getelementptr float, ptr %s3, i64 %v145
  store <4 x float> %v149, ptr %v154, align 4
  %l142.next = add nuw nsw i64 %l142.i, 4
  %v155 = icmp slt i64 %l142.next, 16
  br i1 %v155, label %l142.body, label %l142.end
l142.end:
  %v156 = load <4 x float>, ptr %s138
  %v157 = shufflevector <4 x float> %v156, <4 x float> %v156, <2 x i32> <i32 0, i32 1>
  %v158 = shufflevector <4 x float> %v156, <4 x float> %v156, <2 x i32> <i32 2, i32 3>
  %v159 = fcmp ogt <2 x float> %v157, %v158
  %v160 = fcmp uno <2 x float> %v157, %v157
  %v161 = select <2 x i1> %v159, <2 x float> %v157, <2 x float> %v158
  %v162 = select <2 x i1> %v160, <2 x float> %v157, <2 x float> %v161
  %v163 = shufflevector <2 x float> %v162, <2 x float> %v162, <1 x i32> <i32 0>
  %v164 = shufflevector <2 x float> %v162, <2 x float> %v162, <1 x i32> <i32 1>
  %v165 = fcmp ogt <1 x float> %v163, %v164
  %v166 = fcmp uno <1 x float> %v163, %v163
  %v167 = select <1 x i1> %v165, <1 x float> %v163, <1 x float> %v164
  %v168 = select <1 x i1> %v166, <1 x float> %v163, <1 x float> %v167
  %v169 = extractelement <1 x float> %v168, i32 0
  %v170 = getelementptr float, ptr %s4, i64 %l134.i
  store float %v169, ptr %v170
  %v171 = fcmp oeq float %v169, 0xFFF0000000000000
  %v172 = select i1 %v171, float 0x0000000000000000, float %v169
  %v173 = fsub float %v137, %v172
  %v174 = insertelement <4 x float> poison, float %v173, i32 0
  %v175 = shufflevector <4 x float> %v174, <4 x float> poison, <4 x i32> zeroinitializer
  %v176 = fcmp olt <4 x float> %v175, splat (float 0xC05A000000000000)
  %v177 = select <4 x i1> %v176, <4 x float> splat (float 0x0000000000000000), <4 x float> %v175
  %v178 = fcmp ogt <4 x float> %v177, splat (float 0x4056400000000000)
  %v179 = select <4 x i1> %v178, <4 x float> splat (float 0x4056400000000000), <4 x float> %v177
  %v180 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v179, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v181 = fsub <4 x float> %v180, splat (float 0x4168000000000000)
  %v182 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v181, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v179)
  %v183 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v181, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v182)
  %v184 = fmul <4 x float> %v183, %v183
  %v185 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v183, <4 x float> splat (float 0x3F56D49200000000))
  %v186 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v185, <4 x float> %v183, <4 x float> splat (float 0x3F81110E00000000))
  %v187 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v186, <4 x float> %v183, <4 x float> splat (float 0x3FA5554E40000000))
  %v188 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v187, <4 x float> %v183, <4 x float> splat (float 0x3FC5555560000000))
  %v189 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v188, <4 x float> %v183, <4 x float> splat (float 0x3FE0000000000000))
  %v190 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v184, <4 x float> %v189, <4 x float> %v183)
  %v191 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v192 = bitcast <4 x float> %v180 to <4 x i32>
  %v193 = sub <4 x i32> %v192, %v191
  %v194 = ashr <4 x i32> %v193, splat (i32 1)
  %v195 = fadd <4 x float> %v190, splat (float 0x3FF0000000000000)
  %v196 = add <4 x i32> %v194, splat (i32 127)
  %v197 = shl <4 x i32> %v196, splat (i32 23)
  %v198 = bitcast <4 x i32> %v197 to <4 x float>
  %v199 = fmul <4 x float> %v195, %v198
  %v200 = sub <4 x i32> %v193, %v194
  %v201 = add <4 x i32> %v200, splat (i32 127)
  %v202 = shl <4 x i32> %v201, splat (i32 23)
  %v203 = bitcast <4 x i32> %v202 to <4 x float>
  %v204 = fmul <4 x float> %v199, %v203
  %v205 = select <4 x i1> %v176, <4 x float> splat (float 0x0000000000000000), <4 x float> %v204
  %v206 = extractelement <4 x float> %v205, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s139
  %v208 = icmp slt i64 0, 16
  br i1 %v208, label %l207.body, label %l207.end
l207.body:
  %l207.i = phi i64 [ 0, %l142.end ], [ %l207.next, %l207.body ]
  %v209 = mul i64 %l134.i, 20
  %v210 = add i64 %v209, %l207.i
  %v211 = add i64 %l50.i, %l207.i
  %v212 = getelementptr float, ptr %s3, i64 %v210
  %v213 = load <4 x float>, ptr %v212, align 4
  %v214 = insertelement <4 x float> poison, float %v172, i32 0
  %v215 = shufflevector <4 x float> %v214, <4 x float> poison, <4 x i32> zeroinitializer
  %v216 = fsub <4 x float> %v213, %v215
  %v217 = fcmp olt <4 x float> %v216, splat (float 0xC05A000000000000)
  %v218 = select <4 x i1> %v217, <4 x float> splat (float 0x0000000000000000), <4 x float> %v216
  %v219 = fcmp ogt <4 x float> %v218, splat (float 0x4056400000000000)
  %v220 = select <4 x i1> %v219, <4 x float> splat (float 0x4056400000000000), <4 x float> %v218
  %v221 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v220, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v222 = fsub <4 x float> %v221, splat (float 0x4168000000000000)
  %v223 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v222, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v220)
  %v224 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v222, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v223)
  %v225 = fmul <4 x float> %v224, %v224
  %v226 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v224, <4 x float> splat (float 0x3F56D49200000000))
  %v227 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v226, <4 x float> %v224, <4 x float> splat (float 0x3F81110E00000000))
  %v228 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v227, <4 x float> %v224, <4 x float> splat (float 0x3FA5554E40000000))
  %v229 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v228, <4 x float> %v224, <4 x float> splat (float 0x3FC5555560000000))
  %v230 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v229, <4 x float> %v224, <4 x float> splat (float 0x3FE0000000000000))
  %v231 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v225, <4 x float> %v230, <4 x float> %v224)
  %v232 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v233 = bitcast <4 x float> %v221 to <4 x i32>
  %v234 = sub <4 x i32> %v233, %v232
  %v235 = ashr <4 x i32> %v234, splat (i32 1)
  %v236 = fadd <4 x float> %v231, splat (float 0x3FF0000000000000)
  %v237 = add <4 x i32> %v235, splat (i32 127)
  %v238 = shl <4 x i32> %v237, splat (i32 23)
  %v239 = bitcast <4 x i32> %v238 to <4 x float>
  %v240 = fmul <4 x float> %v236, %v239
  %v241 = sub <4 x i32> %v234, %v235
  %v242 = add <4 x i32> %v241, splat (i32 127)
  %v243 = shl <4 x i32> %v242, splat (i32 23)
  %v244 = bitcast <4 x i32> %v243 to <4 x float>
  %v245 = fmul <4 x float> %v240, %v244
  %v246 = select <4 x i1> %v217, <4 x float> splat (float 0x0000000000000000), <4 x float> %v245
  %v247 = getelementptr float, ptr %s3, i64 %v210
  store <4 x float> %v246, ptr %v247, align 4
  %v248 = load <4 x float>, ptr %s139
  %v249 = fadd <4 x float> %v248, %v246
  store <4 x float> %v249, ptr %s139
  %l207.next = add nuw nsw i64 %l207.i, 4
  %v250 = icmp slt i64 %l207.next, 16
  br i1 %v250, label %l207.body, label %l207.end
l207.end:
  %v251 = getelementptr float, ptr %s5, i64 %l134.i
  %v252 = load float, ptr %v251
  %v253 = fmul float %v252, %v206
  %v254 = load <4 x float>, ptr %s139
  %v255 = shufflevector <4 x float> %v254, <4 x float> %v254, <2 x i32> <i32 0, i32 1>
  %v256 = shufflevector <4 x float> %v254, <4 x float> %v254, <2 x i32> <i32 2, i32 3>
  %v257 = fadd contract <2 x float> %v255, %v256
  %v258 = shufflevector <2 x float> %v257, <2 x float> %v257, <1 x i32> <i32 0>
  %v259 = shufflevector <2 x float> %v257, <2 x float> %v257, <1 x i32> <i32 1>
  %v260 = fadd contract <1 x float> %v258, %v259
  %v261 = extractelement <1 x float> %v260, i32 0
  %v262 = fadd float %v253, %v261
  %v263 = getelementptr float, ptr %s5, i64 %l134.i
  store float %v262, ptr %v263
  %v265 = icmp slt i64 0, 4
  br i1 %v265, label %l264.body, label %l264.end
l264.body:
  %l264.i = phi i64 [ 0, %l207.end ], [ %l264.next, %l264.body ]
  %v266 = mul i64 %l134.i, 4
  %v267 = add i64 %v266, %l264.i
  %v268 = getelementptr float, ptr %s2, i64 %v267
  %v269 = load <4 x float>, ptr %v268, align 4
  %v270 = insertelement <4 x float> poison, float %v206, i32 0
  %v271 = shufflevector <4 x float> %v270, <4 x float> poison, <4 x i32> zeroinitializer
  %v272 = fmul <4 x float> %v269, %v271
  %v273 = getelementptr float, ptr %s2, i64 %v267
  store <4 x float> %v272, ptr %v273, align 4
  %l264.next = add nuw nsw i64 %l264.i, 4
  %v274 = icmp slt i64 %l264.next, 4
  br i1 %v274, label %l264.body, label %l264.end
l264.end:
  %l134.next = add nuw nsw i64 %l134.i, 1
  %v275 = icmp slt i64 %l134.next, 1
  br i1 %v275, label %l134.body, label %l134.end
l134.end:
  %v277 = icmp slt i64 0, 4
  br i1 %v277, label %l276.body, label %l276.end
l276.body:
  %l276.i = phi i64 [ 0, %l134.end ], [ %l276.next, %l285.end ]
  %v279 = getelementptr float, ptr %s2, i64 %l276.i
  %v280 = load <4 x float>, ptr %v279, align 4
  store <4 x float> %v280, ptr %s278
  %v281 = icmp eq i64 %l276.i, 0
  %v282 = add i64 %l50.i, 16
  %v283 = icmp slt i64 %v282, %v49
  %v284 = and i1 %v281, %v283
  %v286 = icmp slt i64 0, 16
  br i1 %v286, label %l285.body, label %l285.end
l285.body:
  %l285.i = phi i64 [ 0, %l276.body ], [ %l285.next, %w287.end ]
  br i1 %v284, label %w287.then, label %w287.end
w287.then:
  %v288 = add i64 %l50.i, %l285.i
  %v289 = add i64 %v288, 16
  %v291 = icmp slt i64 0, 1
  br i1 %v291, label %l290.body, label %l290.end
l290.body:
  %l290.i = phi i64 [ 0, %w287.then ], [ %l290.next, %l290.body ]
  %v292 = add i64 %v289, %l290.i
  %v293 = mul i64 %v11, %size4
  %v294 = mul i64 %v292, 4
  %v295 = add i64 %v293, %v294
  %v296 = mul i64 %v295, 4
  %v297 = getelementptr i8, ptr %p1, i64 %v296
  call void @llvm.prefetch.p0(ptr %v297, i32 0, i32 2, i32 1)
  %l290.next = add nuw nsw i64 %l290.i, 1
  %v298 = icmp slt i64 %l290.next, 1
  br i1 %v298, label %l290.body, label %l290.end
l290.end:
  br label %w287.end
w287.end:
  %v299 = add i64 %l50.i, %l285.i
  %v300 = mul i64 %v11, %size4
  %v301 = mul i64 %v299, 4
  %v302 = add i64 %v300, %v301
  %v303 = add i64 %v302, %l276.i
  %v304 = getelementptr float, ptr %p2, i64 %v303
  %v305 = load <4 x float>, ptr %v304, align 4
  %v306 = getelementptr float, ptr %s3, i64 %l285.i
  %v307 = load float, ptr %v306
  %v308 = insertelement <4 x float> poison, float %v307, i32 0
  %v309 = shufflevector <4 x float> %v308, <4 x float> poison, <4 x i32> zeroinitializer
  %v310 = load <4 x float>, ptr %s278
  %v311 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v309, <4 x float> %v305, <4 x float> %v310)
  store <4 x float> %v311, ptr %s278
  %l285.next = add nuw nsw i64 %l285.i, 1
  %v312 = icmp slt i64 %l285.next, 16
  br i1 %v312, label %l285.body, label %l285.end
l285.end:
  %v313 = load <4 x float>, ptr %s278
  %v314 = getelementptr float, ptr %s2, i64 %l276.i
  store <4 x float> %v313, ptr %v314, align 4
  %l276.next = add nuw nsw i64 %l276.i, 4
  %v315 = icmp slt i64 %l276.next, 4
  br i1 %v315, label %l276.body, label %l276.end
l276.end:
  %l50.next = add nuw nsw i64 %l50.i, 16
  %v316 = icmp slt i64 %l50.next, %v49
  br i1 %v316, label %l50.body, label %l50.end
l50.end:
  %v318 = icmp sle i64 %size3, %v21
  store i1 %v318, ptr %s317
  %v319 = icmp sgt i64 %size3, %v21
  br i1 %v319, label %w320.then, label %w320.end
w320.then:
  %v321 = mul i64 %v11, %size2
  %v322 = mul i64 %v321, 32
  %v323 = getelementptr float, ptr %workspace, i64 %v322
  %v324 = mul i64 %v13, 32
  %v325 = getelementptr float, ptr %v323, i64 %v324
  %v327 = icmp slt i64 0, 1
  br i1 %v327, label %l326.body, label %l326.end
l326.body:
  %l326.i = phi i64 [ 0, %w320.then ], [ %l326.next, %l328.end ]
  %v329 = icmp slt i64 0, 4
  br i1 %v329, label %l328.body, label %l328.end
l328.body:
  %l328.i = phi i64 [ 0, %l326.body ], [ %l328.next, %l328.body ]
  %v330 = mul i64 %l326.i, 4
  %v331 = add i64 %v330, %l328.i
  %v332 = getelementptr float, ptr %s2, i64 %v331
  %v333 = load <4 x float>, ptr %v332, align 4
  %v334 = mul i64 %l326.i, 4
  %v335 = add i64 %v334, %l328.i
  %v336 = getelementptr float, ptr %v325, i64 %v335
  store <4 x float> %v333, ptr %v336, align 4
  %l328.next = add nuw nsw i64 %l328.i, 4
  %v337 = icmp slt i64 %l328.next, 4
  br i1 %v337, label %l328.body, label %l328.end
l328.end:
  %l326.next = add nuw nsw i64 %l326.i, 1
  %v338 = icmp slt i64 %l326.next, 1
  br i1 %v338, label %l326.body, label %l326.end
l326.end:
  %v340 = icmp slt i64 0, 1
  br i1 %v340, label %l339.body, label %l339.end
l339.body:
  %l339.i = phi i64 [ 0, %l326.end ], [ %l339.next, %l339.body ]
  %v341 = getelementptr float, ptr %s4, i64 %l339.i
  %v342 = load float, ptr %v341
  %v343 = add i64 %l339.i, 4
  %v344 = getelementptr float, ptr %v325, i64 %v343
  store float %v342, ptr %v344
  %v345 = getelementptr float, ptr %s5, i64 %l339.i
  %v346 = load float, ptr %v345
  %v347 = add i64 %l339.i, 5
  %v348 = getelementptr float, ptr %v325, i64 %v347
  store float %v346, ptr %v348
  %l339.next = add nuw nsw i64 %l339.i, 1
  %v349 = icmp slt i64 %l339.next, 1
  br i1 %v349, label %l339.body, label %l339.end
l339.end:
  %v350 = sub i64 %size3, 1
  %v351 = udiv i64 %v350, %v21
  %v352 = getelementptr i64, ptr %counters, i64 %v11
  %v353 = atomicrmw add ptr %v352, i64 1 acq_rel, align 8
  %v354 = icmp eq i64 %v353, %v351
  store i1 %v354, ptr %s317
  br i1 %v354, label %w355.then, label %w355.end
w355.then:
  store i64 0, ptr %v352, align 8
  %v356 = add i64 %v351, 1
  %v358 = icmp slt i64 0, 1
  br i1 %v358, label %l357.body, label %l357.end
l357.body:
  %l357.i = phi i64 [ 0, %w355.then ], [ %l357.next, %l383.end ]
  store float 0xFFF0000000000000, ptr %s359
  %v362 = icmp slt i64 0, %v356
  br i1 %v362, label %l361.body, label %l361.end
l361.body:
  %l361.i = phi i64 [ 0, %l357.body ], [ %l361.next, %l361.body ]
  %v363 = add i64 %l357.i, 4
  %v364 = mul i64 %l361.i, 32
  %v365 = add i64 %v364, %v363
  %v366 = getelementptr float, ptr %v323, i64 %v365
  %v367 = load float, ptr %v366
  %v368 = load float, ptr %s359
  %v369 = fcmp ogt float %v367, %v368
  %v370 = load float, ptr %s359
  %v371 = select i1 %v369, float %v367, float %v370
  store float %v371, ptr %s359
  %l361.next = add nuw nsw i64 %l361.i, 1
  %v372 = icmp slt i64 %l361.next, %v356
  br i1 %v372, label %l361.body, label %l361.end
l361.end:
  %v373 = load float, ptr %s359
  %v374 = fcmp oeq float %v373, 0xFFF0000000000000
  %v375 = load float, ptr %s359
  %v376 = select i1 %v374, float 0x0000000000000000, float %v375
  store float 0x0000000000000000, ptr %s360
  %v378 = icmp slt i64 0, 4
  br i1 %v378, label %l377.body, label %l377.end
l377.body:
  %l377.i = phi i64 [ 0, %l361.end ], [ %l377.next, %l377.body ]
  %v379 = mul i64 %l357.i, 4
  %v380 = add i64 %v379, %l377.i
  %v381 = getelementptr float, ptr %s2, i64 %v380
  store <4 x float> splat (float 0x0000000000000000), ptr %v381, align 4
  %l377.next = add nuw nsw i64 %l377.i, 4
  %v382 = icmp slt i64 %l377.next, 4
  br i1 %v382, label %l377.body, label %l377.end
l377.end:
  %v384 = icmp slt i64 0, %v356
  br i1 %v384, label %l383.body, label %l383.end
l383.body:
  %l383.i = phi i64 [ 0, %l377.end ], [ %l383.next, %l431.end ]
  %v385 = add i64 %l357.i, 4
  %v386 = mul i64 %l383.i, 32
  %v387 = add i64 %v386, %v385
  %v388 = getelementptr float, ptr %v323, i64 %v387
  %v389 = load float, ptr %v388
  %v390 = fsub float %v389, %v376
  %v391 = insertelement <4 x float> poison, float %v390, i32 0
  %v392 = shufflevector <4 x float> %v391, <4 x float> poison, <4 x i32> zeroinitializer
  %v393 = fcmp olt <4 x float> %v392, splat (float 0xC05A000000000000)
  %v394 = select <4 x i1> %v393, <4 x float> splat (float 0x0000000000000000), <4 x float> %v392
  %v395 = fcmp ogt <4 x float> %v394, splat (float 0x4056400000000000)
  %v396 = select <4 x i1> %v395, <4 x float> splat (float 0x4056400000000000), <4 x float> %v394
  %v397 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v396, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v398 = fsub <4 x float> %v397, splat (float 0x4168000000000000)
  %v399 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v398, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v396)
  %v400 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v398, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v399)
  %v401 = fmul <4 x float> %v400, %v400
  %v402 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v400, <4 x float> splat (float 0x3F56D49200000000))
  %v403 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v402, <4 x float> %v400, <4 x float> splat (float 0x3F81110E00000000))
  %v404 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v403, <4 x float> %v400, <4 x float> splat (float 0x3FA5554E40000000))
  %v405 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v404, <4 x float> %v400, <4 x float> splat (float 0x3FC5555560000000))
  %v406 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v405, <4 x float> %v400, <4 x float> splat (float 0x3FE0000000000000))
  %v407 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v401, <4 x float> %v406, <4 x float> %v400)
  %v408 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v409 = bitcast <4 x float> %v397 to <4 x i32>
  %v410 = sub <4 x i32> %v409, %v408
  %v411 = ashr <4 x i32> %v410, splat (i32 1)
  %v412 = fadd <4 x float> %v407, splat (float 0x3FF0000000000000)
  %v413 = add <4 x i32> %v411, splat (i32 127)
  %v414 = shl <4 x i32> %v413, splat (i32 23)
  %v415 = bitcast <4 x i32> %v414 to <4 x float>
  %v416 = fmul <4 x float> %v412, %v415
  %v417 = sub <4 x i32> %v410, %v411
  %v418 = add <4 x i32> %v417, splat (i32 127)
  %v419 = shl <4 x i32> %v418, splat (i32 23)
  %v420 = bitcast <4 x i32> %v419 to <4 x float>
  %v421 = fmul <4 x float> %v416, %v420
  %v422 = select <4 x i1> %v393, <4 x float> splat (float 0x0000000000000000), <4 x float> %v421
  %v423 = add i64 %l357.i, 5
  %v424 = mul i64 %l383.i, 32
  %v425 = add i64 %v424, %v423
  %v426 = getelementptr float, ptr %v323, i64 %v425
  %v427 = load float, ptr %v426
  %v428 = extractelement <4 x float> %v422, i32 0
  %v429 = load float, ptr %s360
  %v430 = call float @llvm.fmuladd.f32(float %v427, float %v428, float %v429)
  store float %v430, ptr %s360
  %v432 = icmp slt i64 0, 4
  br i1 %v432, label %l431.body, label %l431.end
l431.body:
  %l431.i = phi i64 [ 0, %l383.body ], [ %l431.next, %l431.body ]
  %v433 = mul i64 %l357.i, 4
  %v434 = add i64 %v433, %l431.i
  %v435 = mul i64 %l383.i, 32
  %v436 = add i64 %v435, %v434
  %v437 = getelementptr float, ptr %v323, i64 %v436
  %v438 = load <4 x float>, ptr %v437, align 4
  %v439 = getelementptr float, ptr %s2, i64 %v434
  %v440 = load <4 x float>, ptr %v439, align 4
  %v441 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v438, <4 x float> %v422, <4 x float> %v440)
  %v442 = getelementptr float, ptr %s2, i64 %v434
  store <4 x float> %v441, ptr %v442, align 4
  %l431.next = add nuw nsw i64 %l431.i, 4
  %v443 = icmp slt i64 %l431.next, 4
  br i1 %v443, label %l431.body, label %l431.end
l431.end:
  %l383.next = add nuw nsw i64 %l383.i, 1
  %v444 = icmp slt i64 %l383.next, %v356
  br i1 %v444, label %l383.body, label %l383.end
l383.end:
  %v445 = load float, ptr %s360
  %v446 = getelementptr float, ptr %s5, i64 %l357.i
  store float %v445, ptr %v446
  %l357.next = add nuw nsw i64 %l357.i, 1
  %v447 = icmp slt i64 %l357.next, 1
  br i1 %v447, label %l357.body, label %l357.end
l357.end:
  br label %w355.end
w355.end:
  br label %w320.end
w320.end:
  %v448 = load i1, ptr %s317
  br i1 %v448, label %w449.then, label %w449.end
w449.then:
  %v451 = icmp slt i64 0, 1
  br i1 %v451, label %l450.body, label %l450.end
l450.body:
  %l450.i = phi i64 [ 0, %w449.then ], [ %l450.next, %l452.end ]
  %v453 = icmp slt i64 0, 4
  br i1 %v453, label %l452.body, label %l452.end
l452.body:
  %l452.i = phi i64 [ 0, %l450.body ], [ %l452.next, %l452.body ]
  %v454 = mul i64 %l450.i, 4
  %v455 = add i64 %v454, %l452.i
  %v456 = getelementptr float, ptr %s2, i64 %v455
  %v457 = load <4 x float>, ptr %v456, align 4
  %v458 = getelementptr float, ptr %s5, i64 %l450.i
  %v459 = load float, ptr %v458
  %v460 = fdiv float 0x3FF0000000000000, %v459
  %v461 = insertelement <4 x float> poison, float %v460, i32 0
  %v462 = shufflevector <4 x float> %v461, <4 x float> poison, <4 x i32> zeroinitializer
  %v463 = fmul <4 x float> %v457, %v462
  %v464 = getelementptr float, ptr %s2, i64 %v455
  store <4 x float> %v463, ptr %v464, align 4
  %l452.next = add nuw nsw i64 %l452.i, 4
  %v465 = icmp slt i64 %l452.next, 4
  br i1 %v465, label %l452.body, label %l452.end
l452.end:
  %l450.next = add nuw nsw i64 %l450.i, 1
  %v466 = icmp slt i64 %l450.next, 1
  br i1 %v466, label %l450.body, label %l450.end
l450.end:
  %v468 = icmp slt i64 0, 1
  br i1 %v468, label %l467.body, label %l467.end
l467.body:
  %l467.i = phi i64 [ 0, %l450.end ], [ %l467.next, %l469.end ]
  %v470 = icmp slt i64 0, 4
  br i1 %v470, label %l469.body, label %l469.end
l469.body:
  %l469.i = phi i64 [ 0, %l467.body ], [ %l469.next, %l469.body ]
  %v471 = mul i64 %l467.i, 4
  %v472 = add i64 %v471, %l469.i
  %v473 = getelementptr float, ptr %s2, i64 %v472
  %v474 = load <4 x float>, ptr %v473, align 4
  %v475 = mul i64 %v11, 4
  %v476 = add i64 %v475, %l469.i
  %v477 = getelementptr float, ptr %p3, i64 %v476
  store <4 x float> %v474, ptr %v477, align 4
  %l469.next = add nuw nsw i64 %l469.i, 4
  %v478 = icmp slt i64 %l469.next, 4
  br i1 %v478, label %l469.body, label %l469.end
l469.end:
  %l467.next = add nuw nsw i64 %l467.i, 1
  %v479 = icmp slt i64 %l467.next, 1
  br i1 %v479, label %l467.body, label %l467.end
l467.end:
  br label %w449.end
w449.end:
  br label %w26.end
w26.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v480 = icmp slt i64 %l6.next, %last
  br i1 %v480, label %l6.body, label %l6.end
l6.end:
  ret void
}
