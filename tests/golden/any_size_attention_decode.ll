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
  %s70 = alloca <4 x float>
  %s71 = alloca <4 x float>
  %s72 = alloca <4 x float>
  %s73 = alloca <4 x float>
  %s135 = alloca <4 x float>
  %s136 = alloca <4 x float>
  %s275 = alloca <4 x float>
  %s309 = alloca i1
  %s350 = alloca float
  %s351 = alloca float
  %v7 = icmp slt i64 %first, %last
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ %first, %entry ], [ %l6.next, %w23.end ]
  %v8 = udiv i64 %l6.i, 2
  %v9 = mul i64 %v8, 2
  %v10 = sub i64 %l6.i, %v9
  %v11 = add i64 %size0, 2
  %v12 = sub i64 %v11, 1
  %v13 = udiv i64 %v12, 2
  %v14 = icmp slt i64 %v13, 256
  %v15 = select i1 %v14, i64 256, i64 %v13
  %v16 = add i64 %v15, 15
  %v17 = udiv i64 %v16, 16
  %v18 = mul i64 %v17, 16
  %v19 = mul i64 %v10, %v18
  %v20 = icmp eq i64 %v10, 0
  %v21 = icmp slt i64 %v19, %size0
  %v22 = or i1 %v20, %v21
  br i1 %v22, label %w23.then, label %w23.end
w23.then:
  %v25 = icmp slt i64 0, 1
  br i1 %v25, label %l24.body, label %l24.end
l24.body:
  %l24.i = phi i64 [ 0, %w23.then ], [ %l24.next, %l36.end ]
  %v27 = icmp slt i64 0, 4
  br i1 %v27, label %l26.body, label %l26.end
l26.body:
  %l26.i = phi i64 [ 0, %l24.body ], [ %l26.next, %l26.body ]
  %v28 = mul i64 %v8, 4
  %v29 = add i64 %v28, %l26.i
  %v30 = getelementptr float, ptr %p0, i64 %v29
  %v31 = load <4 x float>, ptr %v30, align 4
  %v32 = mul i64 %l24.i, 4
  %v33 = add i64 %v32, %l26.i
  %v34 = getelementptr float, ptr %s1, i64 %v33
  store <4 x float> %v31, ptr %v34, align 4
  %l26.next = add nuw nsw i64 %l26.i, 4
  %v35 = icmp slt i64 %l26.next, 4
  br i1 %v35, label %l26.body, label %l26.end
l26.end:
  %v37 = icmp slt i64 0, 4
  br i1 %v37, label %l36.body, label %l36.end
l36.body:
  %l36.i = phi i64 [ 0, %l26.end ], [ %l36.next, %l36.body ]
  %v38 = mul i64 %l24.i, 4
  %v39 = add i64 %v38, %l36.i
  %v40 = getelementptr float, ptr %s2, i64 %v39
  store <4 x float> splat (float 0x0000000000000000), ptr %v40, align 4
  %l36.next = add nuw nsw i64 %l36.i, 4
  %v41 = icmp slt i64 %l36.next, 4
  br i1 %v41, label %l36.body, label %l36.end
l36.end:
  %v42 = getelementptr float, ptr %s4, i64 %l24.i
  store float 0xFFF0000000000000, ptr %v42
  %v43 = getelementptr float, ptr %s5, i64 %l24.i
  store float 0x0000000000000000, ptr %v43
  %l24.next = add nuw nsw i64 %l24.i, 1
  %v44 = icmp slt i64 %l24.next, 1
  br i1 %v44, label %l24.body, label %l24.end
l24.end:
  %v45 = add i64 %v19, %v18
  %v46 = call i64 @llvm.smin.i64(i64 %v45, i64 %size0)
  %v48 = icmp slt i64 %v19, %v46
  br i1 %v48, label %l47.body, label %l47.end
l47.body:
  %l47.i = phi i64 [ %v19, %l24.end ], [ %l47.next, %l273.end ]
  %v50 = icmp slt i64 0, 16
  br i1 %v50, label %l49.body, label %l49.end
l49.body:
  %l49.i = phi i64 [ 0, %l47.body ], [ %l49.next, %l61.end ]
  %v51 = add i64 %l47.i, %l49.i
  %v53 = icmp slt i64 0, 4
  br i1 %v53, label %l52.body, label %l52.end
l52.body:
  %l52.i = phi i64 [ 0, %l49.body ], [ %l52.next, %l52.body ]
  %v54 = add i64 %v51, %l52.i
  %v55 = mul i64 %v8, %size1
  %v56 = mul i64 %v54, 4
  %v57 = add i64 %v55, %v56
  %v58 = mul i64 %v57, 4
  %v59 = getelementptr i8, ptr %p2, i64 %v58
  call void @llvm.prefetch.p0(ptr %v59, i32 0, i32 2, i32 1)
  %l52.next = add nuw nsw i64 %l52.i, 1
  %v60 = icmp slt i64 %l52.next, 4
  br i1 %v60, label %l52.body, label %l52.end
l52.end:
  %v62 = icmp slt i64 0, 1
  br i1 %v62, label %l61.body, label %l61.end
l61.body:
  %l61.i = phi i64 [ 0, %l52.end ], [ %l61.next, %l74.end ]
  %v63 = add i64 %l47.i, %l49.i
  %v64 = add i64 %l47.i, %l49.i
  %v65 = add i64 %v64, 1
  %v66 = add i64 %l47.i, %l49.i
  %v67 = add i64 %v66, 2
  %v68 = add i64 %l47.i, %l49.i
  %v69 = add i64 %v68, 3
  store <4 x float> splat (float 0x0000000000000000), ptr %s70
  store <4 x float> splat (float 0x0000000000000000), ptr %s71
  store <4 x float> splat (float 0x0000000000000000), ptr %s72
  store <4 x float> splat (float 0x0000000000000000), ptr %s73
  %v75 = icmp slt i64 0, 4
  br i1 %v75, label %l74.body, label %l74.end
l74.body:
  %l74.i = phi i64 [ 0, %l61.body ], [ %l74.next, %l74.body ]
  %v76 = mul i64 %l61.i, 4
  %v77 = add i64 %v76, %l74.i
  %v78 = getelementptr float, ptr %s1, i64 %v77
  %v79 = load <4 x float>, ptr %v78, align 4
  %v80 = mul i64 %v8, %size1
  %v81 = mul i64 %v63, 4
  %v82 = add i64 %v80, %v81
  %v83 = add i64 %v82, %l74.i
  %v84 = getelementptr float, ptr %p1, i64 %v83
  %v85 = load <4 x float>, ptr %v84, align 4
  %v86 = load <4 x float>, ptr %s70
  %v87 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v85, <4 x float> %v79, <4 x float> %v86)
  store <4 x float> %v87, ptr %s70
  %v88 = mul i64 %v8, %size1
  %v89 = mul i64 %v65, 4
  %v90 = add i64 %v88, %v89
  %v91 = add i64 %v90, %l74.i
  %v92 = getelementptr float, ptr %p1, i64 %v91
  %v93 = load <4 x float>, ptr %v92, align 4
  %v94 = load <4 x float>, ptr %s71
  %v95 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v93, <4 x float> %v79, <4 x float> %v94)
  store <4 x float> %v95, ptr %s71
  %v96 = mul i64 %v8, %size1
  %v97 = mul i64 %v67, 4
  %v98 = add i64 %v96, %v97
  %v99 = add i64 %v98, %l74.i
  %v100 = getelementptr float, ptr %p1, i64 %v99
  %v101 = load <4 x float>, ptr %v100, align 4
  %v102 = load <4 x float>, ptr %s72
  %v103 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v101, <4 x float> %v79, <4 x float> %v102)
  store <4 x float> %v103, ptr %s72
  %v104 = mul i64 %v8, %size1
  %v105 = mul i64 %v69, 4
  %v106 = add i64 %v104, %v105
  %v107 = add i64 %v106, %l74.i
  %v108 = getelementptr float, ptr %p1, i64 %v107
  %v109 = load <4 x float>, ptr %v108, align 4
  %v110 = load <4 x float>, ptr %s73
  %v111 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v109, <4 x float> %v79, <4 x float> %v110)
  store <4 x float> %v111, ptr %s73
  %l74.next = add nuw nsw i64 %l74.i, 4
  %v112 = icmp slt i64 %l74.next, 4
  br i1 %v112, label %l74.body, label %l74.end
l74.end:
  %v113 = load <4 x float>, ptr %s70
  %v114 = load <4 x float>, ptr %s71
  %v115 = load <4 x float>, ptr %s72
  %v116 = load <4 x float>, ptr %s73
  %v117 = shufflevector <4 x float> %v113, <4 x float> %v114, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v118 = shufflevector <4 x float> %v113, <4 x float> %v114, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v119 = fadd <4 x float> %v117, %v118
  %v120 = shufflevector <4 x float> %v115, <4 x float> %v116, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v121 = shufflevector <4 x float> %v115, <4 x float> %v116, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v122 = fadd <4 x float> %v120, %v121
  %v123 = shufflevector <4 x float> %v119, <4 x float> %v122, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v124 = shufflevector <4 x float> %v119, <4 x float> %v122, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v125 = fadd <4 x float> %v123, %v124
  %v126 = mul i64 %l61.i, 20
  %v127 = add i64 %v126, %l49.i
  %v128 = getelementptr float, ptr %s3, i64 %v127
  store <4 x float> %v125, ptr %v128, align 4
  %l61.next = add nuw nsw i64 %l61.i, 1
  %v129 = icmp slt i64 %l61.next, 1
  br i1 %v129, label %l61.body, label %l61.end
l61.end:
  %l49.next = add nuw nsw i64 %l49.i, 4
  %v130 = icmp slt i64 %l49.next, 16
  br i1 %v130, label %l49.body, label %l49.end
l49.end:
  %v132 = icmp slt i64 0, 1
  br i1 %v132, label %l131.body, label %l131.end
l131.body:
  %l131.i = phi i64 [ 0, %l49.end ], [ %l131.next, %l261.end ]
  %v133 = getelementptr float, ptr %s4, i64 %l131.i
  %v134 = load float, ptr %v133
  %v137 = insertelement <4 x float> poison, float %v134, i32 0
  %v138 = shufflevector <4 x float> %v137, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %v138, ptr %s135
  %v140 = icmp slt i64 0, 16
  br i1 %v140, label %l139.body, label %l139.end
l139.body:
  %l139.i = phi i64 [ 0, %l131.body ], [ %l139.next, %l139.body ]
  %v141 = mul i64 %l131.i, 20
  %v142 = add i64 %v141, %l139.i
  %v143 = add i64 %l47.i, %l139.i
  %v144 = getelementptr float, ptr %s3, i64 %v142
  %v145 = load <4 x float>, ptr %v144, align 4
  %v146 = fmul contract <4 x float> %v145, splat (float 0x3FE0000000000000)
  %v147 = load <4 x float>, ptr %s135
  %v148 = fcmp ogt <4 x float> %v146, %v147
  %v149 = load <4 x float>, ptr %s135
  %v150 = select <4 x i1> %v148, <4 x float> %v146, <4 x float> %v149
  store <4 x float> %v150, ptr %s135
  %v151 = getelementptr float, ptr %s3, i64 %v142
  store <4 x float> %v146, ptr %v151, align 4
  %l139.next = add nuw nsw i64 %l139.i, 4
  %v152 = icmp slt i64 %l139.next, 16
  br i1 %v152, label %l139.body, label %l139.end
l139.end:
  %v153 = load <4 x float>, ptr %s135
  %v154 = shufflevector <4 x float> %v153, <4 x float> %v153, <2 x i32> <i32 0, i32 1>
  %v155 = shufflevector <4 x float> %v153, <4 x float> %v153, <2 x i32> <i32 2, i32 3>
  %v156 = fcmp ogt <2 x float> %v154, %v155
  %v157 = fcmp uno <2 x float> %v154, %v154
  %v158 = select <2 x i1> %v156, <2 x float> %v154, <2 x float> %v155
  %v159 = select <2 x i1> %v157, <2 x float> %v154, <2 x float> %v158
  %v160 = shufflevector <2 x float> %v159, <2 x float> %v159, <1 x i32> <i32 0>
  %v161 = shufflevector <2 x float> %v159, <2 x float> %v159, <1 x i32> <i32 1>
  %v162 = fcmp ogt <1 x float> %v160, %v161
  %v163 = fcmp uno <1 x float> %v160, %v160
  %v164 = select <1 x i1> %v162, <1 x float> %v160, <1 x float> %v161
  %v165 = select <1 x i1> %v163, <1 x float> %v160, <1 x float> %v164
  %v166 = extractelement <1 x float> %v165, i32 0
  %v167 = getelementptr float, ptr %s4, i64 %l131.i
  store float %v166, ptr %v167
  %v168 = fcmp oeq float %v166, 0xFFF0000000000000
  %v169 = select i1 %v168, float 0x0000000000000000, float %v166
  %v170 = fsub float %v134, %v169
  %v171 = insertelement <4 x float> poison, float %v170, i32 0
  %v172 = shufflevector <4 x float> %v171, <4 x float> poison, <4 x i32> zeroinitializer
  %v173 = fcmp olt <4 x float> %v172, splat (float 0xC05A000000000000)
  %v174 = select <4 x i1> %v173, <4 x float> splat (float 0x0000000000000000), <4 x float> %v172
  %v175 = fcmp ogt <4 x float> %v174, splat (float 0x4056400000000000)
  %v176 = select <4 x i1> %v175, <4 x float> splat (float 0x4056400000000000), <4 x float> %v174
  %v177 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v176, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v178 = fsub <4 x float> %v177, splat (float 0x4168000000000000)
  %v179 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v178, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v176)
  %v180 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v178, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v179)
  %v181 = fmul <4 x float> %v180, %v180
  %v182 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v180, <4 x float> splat (float 0x3F56D49200000000))
  %v183 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v182, <4 x float> %v180, <4 x float> splat (float 0x3F81110E00000000))
  %v184 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v183, <4 x float> %v180, <4 x float> splat (float 0x3FA5554E40000000))
  %v185 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v184, <4 x float> %v180, <4 x float> splat (float 0x3FC5555560000000))
  %v186 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v185, <4 x float> %v180, <4 x float> splat (float 0x3FE0000000000000))
  %v187 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v181, <4 x float> %v186, <4 x float> %v180)
  %v188 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v189 = bitcast <4 x float> %v177 to <4 x i32>
  %v190 = sub <4 x i32> %v189, %v188
  %v191 = ashr <4 x i32> %v190, splat (i32 1)
  %v192 = fadd <4 x float> %v187, splat (float 0x3FF0000000000000)
  %v193 = add <4 x i32> %v191, splat (i32 127)
  %v194 = shl <4 x i32> %v193, splat (i32 23)
  %v195 = bitcast <4 x i32> %v194 to <4 x float>
  %v196 = fmul <4 x float> %v192, %v195
  %v197 = sub <4 x i32> %v190, %v191
  %v198 = add <4 x i32> %v197, splat (i32 127)
  %v199 = shl <4 x i32> %v198, splat (i32 23)
  %v200 = bitcast <4 x i32> %v199 to <4 x float>
  %v201 = fmul <4 x float> %v196, %v200
  %v202 = select <4 x i1> %v173, <4 x float> splat (float 0x0000000000000000), <4 x float> %v201
  %v203 = extractelement <4 x float> %v202, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s136
  %v205 = icmp slt i64 0, 16
  br i1 %v205, label %l204.body, label %l204.end
l204.body:
  %l204.i = phi i64 [ 0, %l139.end ], [ %l204.next, %l204.body ]
  %v206 = mul i64 %l131.i, 20
  %v207 = add i64 %v206, %l204.i
  %v208 = add i64 %l47.i, %l204.i
  %v209 = getelementptr float, ptr %s3, i64 %v207
  %v210 = load <4 x float>, ptr %v209, align 4
  %v211 = insertelement <4 x float> poison, float %v169, i32 0
  %v212 = shufflevector <4 x float> %v211, <4 x float> poison, <4 x i32> zeroinitializer
  %v213 = fsub <4 x float> %v210, %v212
  %v214 = fcmp olt <4 x float> %v213, splat (float 0xC05A000000000000)
  %v215 = select <4 x i1> %v214, <4 x float> splat (float 0x0000000000000000), <4 x float> %v213
  %v216 = fcmp ogt <4 x float> %v215, splat (float 0x4056400000000000)
  %v217 = select <4 x i1> %v216, <4 x float> splat (float 0x4056400000000000), <4 x float> %v215
  %v218 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v217, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v219 = fsub <4 x float> %v218, splat (float 0x4168000000000000)
  %v220 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v219, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v217)
  %v221 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v219, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v220)
  %v222 = fmul <4 x float> %v221, %v221
  %v223 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v221, <4 x float> splat (float 0x3F56D49200000000))
  %v224 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v223, <4 x float> %v221, <4 x float> splat (float 0x3F81110E00000000))
  %v225 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v224, <4 x float> %v221, <4 x float> splat (float 0x3FA5554E40000000))
  %v226 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v225, <4 x float> %v221, <4 x float> splat (float 0x3FC5555560000000))
  %v227 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v226, <4 x float> %v221, <4 x float> splat (float 0x3FE0000000000000))
  %v228 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v222, <4 x float> %v227, <4 x float> %v221)
  %v229 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v230 = bitcast <4 x float> %v218 to <4 x i32>
  %v231 = sub <4 x i32> %v230, %v229
  %v232 = ashr <4 x i32> %v231, splat (i32 1)
  %v233 = fadd <4 x float> %v228, splat (float 0x3FF0000000000000)
  %v234 = add <4 x i32> %v232, splat (i32 127)
  %v235 = shl <4 x i32> %v234, splat (i32 23)
  %v236 = bitcast <4 x i32> %v235 to <4 x float>
  %v237 = fmul <4 x float> %v233, %v236
  %v238 = sub <4 x i32> %v231, %v232
  %v239 = add <4 x i32> %v238, splat (i32 127)
  %v240 = shl <4 x i32> %v239, splat (i32 23)
  %v241 = bitcast <4 x i32> %v240 to <4 x float>
  %v242 = fmul <4 x float> %v237, %v241
  %v243 = select <4 x i1> %v214, <4 x float> splat (float 0x0000000000000000), <4 x float> %v242
  %v244 = getelementptr float, ptr %s3, i64 %v207
  store <4 x float> %v243, ptr %v244, align 4
  %v245 = load <4 x float>, ptr %s136
  %v246 = fadd <4 x float> %v245, %v243
  store <4 x float> %v246, ptr %s136
  %l204.next = add nuw nsw i64 %l204.i, 4
  %v247 = icmp slt i64 %l204.next, 16
  br i1 %v247, label %l204.body, label %l204.end
l204.end:
  %v248 = getelementptr float, ptr %s5, i64 %l131.i
  %v249 = load float, ptr %v248
  %v250 = fmul float %v249, %v203
  %v251 = load <4 x float>, ptr %s136
  %v252 = shufflevector <4 x float> %v251, <4 x float> %v251, <2 x i32> <i32 0, i32 1>
  %v253 = shufflevector <4 x float> %v251, <4 x float> %v251, <2 x i32> <i32 2, i32 3>
  %v254 = fadd contract <2 x float> %v252, %v253
  %v255 = shufflevector <2 x float> %v254, <2 x float> %v254, <1 x i32> <i32 0>
  %v256 = shufflevector <2 x float> %v254, <2 x float> %v254, <1 x i32> <i32 1>
  %v257 = fadd contract <1 x float> %v255, %v256
  %v258 = extractelement <1 x float> %v257, i32 0
  %v259 = fadd float %v250, %v258
  %v260 = getelementptr float, ptr %s5, i64 %l131.i
  store float %v259, ptr %v260
  %v262 = icmp slt i64 0, 4
  br i1 %v262, label %l261.body, label %l261.end
l261.body:
  %l261.i = phi i64 [ 0, %l204.end ], [ %l261.next, %l261.body ]
  %v263 = mul i64 %l131.i, 4
  %v264 = add i64 %v263, %l261.i
  %v265 = getelementptr float, ptr %s2, i64 %v264
  %v266 = load <4 x float>, ptr %v265, align 4
  %v267 = insertelement <4 x float> poison, float %v203, i32 0
  %v268 = shufflevector <4 x float> %v267, <4 x float> poison, <4 x i32> zeroinitializer
  %v269 = fmul <4 x float> %v266, %v268
  %v270 = getelementptr float, ptr %s2, i64 %v264
  store <4 x float> %v269, ptr %v270, align 4
  %l261.next = add nuw nsw i64 %l261.i, 4
  %v271 = icmp slt i64 %l261.next, 4
  br i1 %v271, label %l261.body, label %l261.end
l261.end:
  %l131.next = add nuw nsw i64 %l131.i, 1
  %v272 = icmp slt i64 %l131.next, 1
  br i1 %v272, label %l131.body, label %l131.end
l131.end:
  %v274 = icmp slt i64 0, 4
  br i1 %v274, label %l273.body, label %l273.end
l273.body:
  %l273.i = phi i64 [ 0, %l131.end ], [ %l273.next, %l278.end ]
  %v276 = getelementptr float, ptr %s2, i64 %l273.i
  %v277 = load <4 x float>, ptr %v276, align 4
  store <4 x float> %v277, ptr %s275
  %v279 = icmp slt i64 0, 16
  br i1 %v279, label %l278.body, label %l278.end
l278.body:
  %l278.i = phi i64 [ 0, %l273.body ], [ %l278.next, %l282.end ]
  %v280 = add i64 %l47.i, %l278.i
  %v281 = add i64 %v280, 16
  %v283 = icmp slt i64 0, 1
  br i1 %v283, label %l282.body, label %l282.end
l282.body:
  %l282.i = phi i64 [ 0, %l278.body ], [ %l282.next, %l282.body ]
  %v284 = add i64 %v281, %l282.i
  %v285 = mul i64 %v8, %size1
  %v286 = mul i64 %v284, 4
  %v287 = add i64 %v285, %v286
  %v288 = mul i64 %v287, 4
  %v289 = getelementptr i8, ptr %p1, i64 %v288
  call void @llvm.prefetch.p0(ptr %v289, i32 0, i32 2, i32 1)
  %l282.next = add nuw nsw i64 %l282.i, 1
  %v290 = icmp slt i64 %l282.next, 1
  br i1 %v290, label %l282.body, label %l282.end
l282.end:
  %v291 = add i64 %l47.i, %l278.i
  %v292 = mul i64 %v8, %size1
  %v293 = mul i64 %v291, 4
  %v294 = add i64 %v292, %v293
  %v295 = add i64 %v294, %l273.i
  %v296 = getelementptr float, ptr %p2, i64 %v295
  %v297 = load <4 x float>, ptr %v296, align 4
  %v298 = getelementptr float, ptr %s3, i64 %l278.i
  %v299 = load float, ptr %v298
  %v300 = insertelement <4 x float> poison, float %v299, i32 0
  %v301 = shufflevector <4 x float> %v300, <4 x float> poison, <4 x i32> zeroinitializer
  %v302 = load <4 x float>, ptr %s275
  %v303 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v301, <4 x float> %v297, <4 x float> %v302)
  store <4 x float> %v303, ptr %s275
  %l278.next = add nuw nsw i64 %l278.i, 1
  %v304 = icmp slt i64 %l278.next, 16
  br i1 %v304, label %l278.body, label %l278.end
l278.end:
  %v305 = load <4 x float>, ptr %s275
  %v306 = getelementptr float, ptr %s2, i64 %l273.i
  store <4 x float> %v305, ptr %v306, align 4
  %l273.next = add nuw nsw i64 %l273.i, 4
  %v307 = icmp slt i64 %l273.next, 4
  br i1 %v307, label %l273.body, label %l273.end
l273.end:
  %l47.next = add nuw nsw i64 %l47.i, 16
  %v308 = icmp slt i64 %l47.next, %v46
  br i1 %v308, label %l47.body, label %l47.end
l47.end:
  %v310 = icmp sle i64 %size0, %v18
  store i1 %v310, ptr %s309
  %v311 = icmp sgt i64 %size0, %v18
  br i1 %v311, label %w312.then, label %w312.end
w312.then:
  %v313 = mul i64 %v8, 32
  %v314 = getelementptr float, ptr %workspace, i64 %v313
  %v315 = mul i64 %v10, 16
  %v316 = getelementptr float, ptr %v314, i64 %v315
  %v318 = icmp slt i64 0, 1
  br i1 %v318, label %l317.body, label %l317.end
l317.body:
  %l317.i = phi i64 [ 0, %w312.then ], [ %l317.next, %l319.end ]
  %v320 = icmp slt i64 0, 4
  br i1 %v320, label %l319.body, label %l319.end
l319.body:
  %l319.i = phi i64 [ 0, %l317.body ], [ %l319.next, %l319.body ]
  %v321 = mul i64 %l317.i, 4
  %v322 = add i64 %v321, %l319.i
  %v323 = getelementptr float, ptr %s2, i64 %v322
  %v324 = load <4 x float>, ptr %v323, align 4
  %v325 = mul i64 %l317.i, 4
  %v326 = add i64 %v325, %l319.i
  %v327 = getelementptr float, ptr %v316, i64 %v326
  store <4 x float> %v324, ptr %v327, align 4
  %l319.next = add nuw nsw i64 %l319.i, 4
  %v328 = icmp slt i64 %l319.next, 4
  br i1 %v328, label %l319.body, label %l319.end
l319.end:
  %l317.next = add nuw nsw i64 %l317.i, 1
  %v329 = icmp slt i64 %l317.next, 1
  br i1 %v329, label %l317.body, label %l317.end
l317.end:
  %v331 = icmp slt i64 0, 1
  br i1 %v331, label %l330.body, label %l330.end
l330.body:
  %l330.i = phi i64 [ 0, %l317.end ], [ %l330.next, %l330.body ]
  %v332 = getelementptr float, ptr %s4, i64 %l330.i
  %v333 = load float, ptr %v332
  %v334 = add i64 %l330.i, 4
  %v335 = getelementptr float, ptr %v316, i64 %v334
  store float %v333, ptr %v335
  %v336 = getelementptr float, ptr %s5, i64 %l330.i
  %v337 = load float, ptr %v336
  %v338 = add i64 %l330.i, 5
  %v339 = getelementptr float, ptr %v316, i64 %v338
  store float %v337, ptr %v339
  %l330.next = add nuw nsw i64 %l330.i, 1
  %v340 = icmp slt i64 %l330.next, 1
  br i1 %v340, label %l330.body, label %l330.end
l330.end:
  %v341 = sub i64 %size0, 1
  %v342 = udiv i64 %v341, %v18
  %v343 = getelementptr i64, ptr %counters, i64 %v8
  %v344 = atomicrmw add ptr %v343, i64 1 acq_rel, align 8
  %v345 = icmp eq i64 %v344, %v342
  store i1 %v345, ptr %s309
  br i1 %v345, label %w346.then, label %w346.end
w346.then:
  store i64 0, ptr %v343, align 8
  %v347 = add i64 %v342, 1
  %v349 = icmp slt i64 0, 1
  br i1 %v349, label %l348.body, label %l348.end
l348.body:
  %l348.i = phi i64 [ 0, %w346.then ], [ %l348.next, %l374.end ]
  store float 0xFFF0000000000000, ptr %s350
  %v353 = icmp slt i64 0, %v347
  br i1 %v353, label %l352.body, label %l352.end
l352.body:
  %l352.i = phi i64 [ 0, %l348.body ], [ %l352.next, %l352.body ]
  %v354 = add i64 %l348.i, 4
  %v355 = mul i64 %l352.i, 16
  %v356 = add i64 %v355, %v354
  %v357 = getelementptr float, ptr %v314, i64 %v356
  %v358 = load float, ptr %v357
  %v359 = load float, ptr %s350
  %v360 = fcmp ogt float %v358, %v359
  %v361 = load float, ptr %s350
  %v362 = select i1 %v360, float %v358, float %v361
  store float %v362, ptr %s350
  %l352.next = add nuw nsw i64 %l352.i, 1
  %v363 = icmp slt i64 %l352.next, %v347
  br i1 %v363, label %l352.body, label %l352.end
l352.end:
  %v364 = load float, ptr %s350
  %v365 = fcmp oeq float %v364, 0xFFF0000000000000
  %v366 = load float, ptr %s350
  %v367 = select i1 %v365, float 0x0000000000000000, float %v366
  store float 0x0000000000000000, ptr %s351
  %v369 = icmp slt i64 0, 4
  br i1 %v369, label %l368.body, label %l368.end
l368.body:
  %l368.i = phi i64 [ 0, %l352.end ], [ %l368.next, %l368.body ]
  %v370 = mul i64 %l348.i, 4
  %v371 = add i64 %v370, %l368.i
  %v372 = getelementptr float, ptr %s2, i64 %v371
  store <4 x float> splat (float 0x0000000000000000), ptr %v372, align 4
  %l368.next = add nuw nsw i64 %l368.i, 4
  %v373 = icmp slt i64 %l368.next, 4
  br i1 %v373, label %l368.body, label %l368.end
l368.end:
  %v375 = icmp slt i64 0, %v347
  br i1 %v375, label %l374.body, label %l374.end
l374.body:
  %l374.i = phi i64 [ 0, %l368.end ], [ %l374.next, %l422.end ]
  %v376 = add i64 %l348.i, 4
  %v377 = mul i64 %l374.i, 16
  %v378 = add i64 %v377, %v376
  %v379 = getelementptr float, ptr %v314, i64 %v378
  %v380 = load float, ptr %v379
  %v381 = fsub float %v380, %v367
  %v382 = insertelement <4 x float> poison, float %v381, i32 0
  %v383 = shufflevector <4 x float> %v382, <4 x float> poison, <4 x i32> zeroinitializer
  %v384 = fcmp olt <4 x float> %v383, splat (float 0xC05A000000000000)
  %v385 = select <4 x i1> %v384, <4 x float> splat (float 0x0000000000000000), <4 x float> %v383
  %v386 = fcmp ogt <4 x float> %v385, splat (float 0x4056400000000000)
  %v387 = select <4 x i1> %v386, <4 x float> splat (float 0x4056400000000000), <4 x float> %v385
  %v388 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v387, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v389 = fsub <4 x float> %v388, splat (float 0x4168000000000000)
  %v390 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v389, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v387)
  %v391 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v389, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v390)
  %v392 = fmul <4 x float> %v391, %v391
  %v393 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v391, <4 x float> splat (float 0x3F56D49200000000))
  %v394 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v393, <4 x float> %v391, <4 x float> splat (float 0x3F81110E00000000))
  %v395 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v394, <4 x float> %v391, <4 x float> splat (float 0x3FA5554E40000000))
  %v396 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v395, <4 x float> %v391, <4 x float> splat (float 0x3FC5555560000000))
  %v397 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v396, <4 x float> %v391, <4 x float> splat (float 0x3FE0000000000000))
  %v398 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v392, <4 x float> %v397, <4 x float> %v391)
  %v399 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v400 = bitcast <4 x float> %v388 to <4 x i32>
  %v401 = sub <4 x i32> %v400, %v399
  %v402 = ashr <4 x i32> %v401, splat (i32 1)
  %v403 = fadd <4 x float> %v398, splat (float 0x3FF0000000000000)
  %v404 = add <4 x i32> %v402, splat (i32 127)
  %v405 = shl <4 x i32> %v404, splat (i32 23)
  %v406 = bitcast <4 x i32> %v405 to <4 x float>
  %v407 = fmul <4 x float> %v403, %v406
  %v408 = sub <4 x i32> %v401, %v402
  %v409 = add <4 x i32> %v408, splat (i32 127)
  %v410 = shl <4 x i32> %v409, splat (i32 23)
  %v411 = bitcast <4 x i32> %v410 to <4 x float>
  %v412 = fmul <4 x float> %v407, %v411
  %v413 = select <4 x i1> %v384, <4 x float> splat (float 0x0000000000000000), <4 x float> %v412
  %v414 = add i64 %l348.i, 5
  %v415 = mul i64 %l374.i, 16
  %v416 = add i64 %v415, %v414
  %v417 = getelementptr float, ptr %v314, i64 %v416
  %v418 = load float, ptr %v417
  %v419 = extractelement <4 x float> %v413, i32 0
  %v420 = load float, ptr %s351
  %v421 = call float @llvm.fmuladd.f32(float %v418, float %v419, float %v420)
  store float %v421, ptr %s351
  %v423 = icmp slt i64 0, 4
  br i1 %v423, label %l422.body, label %l422.end
l422.body:
  %l422.i = phi i64 [ 0, %l374.body ], [ %l422.next, %l422.body ]
  %v424 = mul i64 %l348.i, 4
  %v425 = add i64 %v424, %l422.i
  %v426 = mul i64 %l374.i, 16
  %v427 = add i64 %v426, %v425
  %v428 = getelementptr float, ptr %v314, i64 %v427
  %v429 = load <4 x float>, ptr %v428, align 4
  %v430 = getelementptr float, ptr %s2, i64 %v425
  %v431 = load <4 x float>, ptr %v430, align 4
  %v432 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v429, <4 x float> %v413, <4 x float> %v431)
  %v433 = getelementptr float, ptr %s2, i64 %v425
  store <4 x float> %v432, ptr %v433, align 4
  %l422.next = add nuw nsw i64 %l422.i, 4
  %v434 = icmp slt i64 %l422.next, 4
  br i1 %v434, label %l422.body, label %l422.end
l422.end:
  %l374.next = add nuw nsw i64 %l374.i, 1
  %v435 = icmp slt i64 %l374.next, %v347
  br i1 %v435, label %l374.body, label %l374.end
l374.end:
  %v436 = load float, ptr %s351
  %v437 = getelementptr float, ptr %s5, i64 %l348.i
  store float %v436, ptr %v437
  %l348.next = add nuw nsw i64 %l348.i, 1
  %v438 = icmp slt i64 %l348.next, 1
  br i1 %v438, label %l348.body, label %l348.end
l348.end:
  br label %w346.end
w346.end:
  br label %w312.end
w312.end:
  %v439 = load i1, ptr %s309
  br i1 %v439, label %w440.then, label %w440.end
w440.then:
  %v442 = icmp slt i64 0, 1
  br i1 %v442, label %l441.body, label %l441.end
l441.body:
  %l441.i = phi i64 [ 0, %w440.then ], [ %l441.next, %l443.end ]
  %v444 = icmp slt i64 0, 4
  br i1 %v444, label %l443.body, label %l443.end
l443.body:
  %l443.i = phi i64 [ 0, %l441.body ], [ %l443.next, %l443.body ]
  %v445 = mul i64 %l441.i, 4
  %v446 = add i64 %v445, %l443.i
  %v447 = getelementptr float, ptr %s2, i64 %v446
  %v448 = load <4 x float>, ptr %v447, align 4
  %v449 = getelementptr float, ptr %s5, i64 %l441.i
  %v450 = load float, ptr %v449
  %v451 = fdiv float 0x3FF0000000000000, %v450
  %v452 = insertelement <4 x float> poison, float %v451, i32 0
  %v453 = shufflevector <4 x float> %v452, <4 x float> poison, <4 x i32> zeroinitializer
  %v454 = fmul <4 x float> %v448, %v453
  %v455 = getelementptr float, ptr %s2, i64 %v446
  store <4 x float> %v454, ptr %v455, align 4
  %l443.next = add nuw nsw i64 %l443.i, 4
  %v456 = icmp slt i64 %l443.next, 4
  br i1 %v456, label %l443.body, label %l443.end
l443.end:
  %l441.next = add nuw nsw i64 %l441.i, 1
  %v457 = icmp slt i64 %l441.next, 1
  br i1 %v457, label %l441.body, label %l441.end
l441.end:
  %v459 = icmp slt i64 0, 1
  br i1 %v459, label %l458.body, label %l458.end
l458.body:
  %l458.i = phi i64 [ 0, %l441.end ], [ %l458.next, %l460.end ]
  %v461 = icmp slt i64 0, 4
  br i1 %v461, label %l460.body, label %l460.end
l460.body:
  %l460.i = phi i64 [ 0, %l458.body ], [ %l460.next, %l460.body ]
  %v462 = mul i64 %l458.i, 4
  %v463 = add i64 %v462, %l460.i
  %v464 = getelementptr float, ptr %s2, i64 %v463
  %v465 = load <4 x float>, ptr %v464, align 4
  %v466 = mul i64 %v8, 4
  %v467 = add i64 %v466, %l460.i
  %v468 = getelementptr float, ptr %p3, i64 %v467
  store <4 x float> %v465, ptr %v468, align 4
  %l460.next = add nuw nsw i64 %l460.i, 4
  %v469 = icmp slt i64 %l460.next, 4
  br i1 %v469, label %l460.body, label %l460.end
l460.end:
  %l458.next = add nuw nsw i64 %l458.i, 1
  %v470 = icmp slt i64 %l458.next, 1
  br i1 %v470, label %l458.body, label %l458.end
l458.end:
  br label %w440.end
w440.end:
  br label %w23.end
w23.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v471 = icmp slt i64 %l6.next, %last
  br i1 %v471, label %l6.body, label %l6.end
l6.end:
  ret void
}
