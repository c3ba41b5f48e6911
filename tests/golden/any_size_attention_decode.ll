; attention 2x1x1xnx4x4
; problem   batch=2 m=1 n=150 depth=4 values=4 key_bytes=32  (an example: each run decides its sizes)
; schedule  lanes=4 tile_n=16 wide=1
; engine    attention/decode

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

define internal void @k.sums(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
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
  %s48 = alloca <4 x float>
  %s49 = alloca <4 x float>
  %s50 = alloca <4 x float>
  %s51 = alloca <4 x float>
  %size2.at = getelementptr i64, ptr %sizes, i64 2
  %size2 = load i64, ptr %size2.at, !invariant.load !{}
  %s113 = alloca <4 x float>
  %s114 = alloca <4 x float>
  %s266 = alloca <4 x float>
  %v7 = icmp slt i64 %first, %last
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ %first, %entry ], [ %l6.next, %l306.end ]
  %v9 = icmp slt i64 0, 1
  br i1 %v9, label %l8.body, label %l8.end
l8.body:
  %l8.i = phi i64 [ 0, %l6.body ], [ %l8.next, %l20.end ]
  %v11 = icmp slt i64 0, 4
  br i1 %v11, label %l10.body, label %l10.end
l10.body:
  %l10.i = phi i64 [ 0, %l8.body ], [ %l10.next, %l10.body ]
  %v12 = mul i64 %l6.i, 4
  %v13 = add i64 %v12, %l10.i
  %v14 = getelementptr float, ptr %p0, i64 %v13
  %v15 = load <4 x float>, ptr %v14, align 4
  %v16 = mul i64 %l8.i, 4
  %v17 = add i64 %v16, %l10.i
  %v18 = getelementptr float, ptr %s1, i64 %v17
  store <4 x float> %v15, ptr %v18, align 4
  %l10.next = add nuw nsw i64 %l10.i, 4
  %v19 = icmp slt i64 %l10.next, 4
  br i1 %v19, label %l10.body, label %l10.end
l10.end:
  %v21 = icmp slt i64 0, 4
  br i1 %v21, label %l20.body, label %l20.end
l20.body:
  %l20.i = phi i64 [ 0, %l10.end ], [ %l20.next, %l20.body ]
  %v22 = mul i64 %l8.i, 4
  %v23 = add i64 %v22, %l20.i
  %v24 = getelementptr float, ptr %s2, i64 %v23
  store <4 x float> splat (float 0x0000000000000000), ptr %v24, align 4
  %l20.next = add nuw nsw i64 %l20.i, 4
  %v25 = icmp slt i64 %l20.next, 4
  br i1 %v25, label %l20.body, label %l20.end
l20.end:
  %v26 = getelementptr float, ptr %s4, i64 %l8.i
  store float 0xFFF0000000000000, ptr %v26
  %v27 = getelementptr float, ptr %s5, i64 %l8.i
  store float 0x0000000000000000, ptr %v27
  %l8.next = add nuw nsw i64 %l8.i, 1
  %v28 = icmp slt i64 %l8.next, 1
  br i1 %v28, label %l8.body, label %l8.end
l8.end:
  %v30 = icmp slt i64 0, %size0
  br i1 %v30, label %l29.body, label %l29.end
l29.body:
  %l29.i = phi i64 [ 0, %l8.end ], [ %l29.next, %l264.end ]
  %v31 = sub i64 %size0, %l29.i
  %v32 = call i64 @llvm.smin.i64(i64 %v31, i64 16)
  %v34 = icmp slt i64 0, %v32
  br i1 %v34, label %l33.body, label %l33.end
l33.body:
  %l33.i = phi i64 [ 0, %l29.body ], [ %l33.next, %l35.end ]
  %v36 = icmp slt i64 0, 1
  br i1 %v36, label %l35.body, label %l35.end
l35.body:
  %l35.i = phi i64 [ 0, %l33.body ], [ %l35.next, %l52.end ]
  %v37 = add i64 %l29.i, %l33.i
  %v38 = call i64 @llvm.smin.i64(i64 %v37, i64 %size1)
  %v39 = add i64 %l29.i, %l33.i
  %v40 = add i64 %v39, 1
  %v41 = call i64 @llvm.smin.i64(i64 %v40, i64 %size1)
  %v42 = add i64 %l29.i, %l33.i
  %v43 = add i64 %v42, 2
  %v44 = call i64 @llvm.smin.i64(i64 %v43, i64 %size1)
  %v45 = add i64 %l29.i, %l33.i
  %v46 = add i64 %v45, 3
  %v47 = call i64 @llvm.smin.i64(i64 %v46, i64 %size1)
  store <4 x float> splat (float 0x0000000000000000), ptr %s48
  store <4 x float> splat (float 0x0000000000000000), ptr %s49
  store <4 x float> splat (float 0x0000000000000000), ptr %s50
  store <4 x float> splat (float 0x0000000000000000), ptr %s51
  %v53 = icmp slt i64 0, 4
  br i1 %v53, label %l52.body, label %l52.end
l52.body:
  %l52.i = phi i64 [ 0, %l35.body ], [ %l52.next, %l52.body ]
  %v54 = mul i64 %l35.i, 4
  %v55 = add i64 %v54, %l52.i
  %v56 = getelementptr float, ptr %s1, i64 %v55
  %v57 = load <4 x float>, ptr %v56, align 4
  %v58 = mul i64 %l6.i, %size2
  %v59 = mul i64 %v38, 4
  %v60 = add i64 %v58, %v59
  %v61 = add i64 %v60, %l52.i
  %v62 = getelementptr float, ptr %p1, i64 %v61
  %v63 = load <4 x float>, ptr %v62, align 4
  %v64 = load <4 x float>, ptr %s48
  %v65 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v63, <4 x float> %v57, <4 x float> %v64)
  store <4 x float> %v65, ptr %s48
  %v66 = mul i64 %l6.i, %size2
  %v67 = mul i64 %v41, 4
  %v68 = add i64 %v66, %v67
  %v69 = add i64 %v68, %l52.i
  %v70 = getelementptr float, ptr %p1, i64 %v69
  %v71 = load <4 x float>, ptr %v70, align 4
  %v72 = load <4 x float>, ptr %s49
  %v73 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v71, <4 x float> %v57, <4 x float> %v72)
  store <4 x float> %v73, ptr %s49
  %v74 = mul i64 %l6.i, %size2
  %v75 = mul i64 %v44, 4
  %v76 = add i64 %v74, %v75
  %v77 = add i64 %v76, %l52.i
  %v78 = getelementptr float, ptr %p1, i64 %v77
  %v79 = load <4 x float>, ptr %v78, align 4
  %v80 = load <4 x float>, ptr %s50
  %v81 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v79, <4 x float> %v57, <4 x float> %v80)
  store <4 x float> %v81, ptr %s50
  %v82 = mul i64 %l6.i, %size2
  %v83 = mul i64 %v47, 4
  %v84 = add i64 %v82, %v83
  %v85 = add i64 %v84, %l52.i
  %v86 = getelementptr float, ptr %p1, i64 %v85
  %v87 = load <4 x float>, ptr %v86, align 4
  %v88 = load <4 x float>, ptr %s51
  %v89 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v87, <4 x float> %v57, <4 x float> %v88)
  store <4 x float> %v89, ptr %s51
  %l52.next = add nuw nsw i64 %l52.i, 4
  %v90 = icmp slt i64 %l52.next, 4
  br i1 %v90, label %l52.body, label %l52.end
l52.end:
  %v91 = load <4 x float>, ptr %s48
  %v92 = load <4 x float>, ptr %s49
  %v93 = load <4 x float>, ptr %s50
  %v94 = load <4 x float>, ptr %s51
  %v95 = shufflevector <4 x float> %v91, <4 x float> %v92, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v96 = shufflevector <4 x float> %v91, <4 x float> %v92, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v97 = fadd <4 x float> %v95, %v96
  %v98 = shufflevector <4 x float> %v93, <4 x float> %v94, <4 x i32> <i32 0, i32 1, i32 4, i32 5>
  %v99 = shufflevector <4 x float> %v93, <4 x float> %v94, <4 x i32> <i32 2, i32 3, i32 6, i32 7>
  %v100 = fadd <4 x float> %v98, %v99
  %v101 = shufflevector <4 x float> %v97, <4 x float> %v100, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
  %v102 = shufflevector <4 x float> %v97, <4 x float> %v100, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
  %v103 = fadd <4 x float> %v101, %v102
  %v104 = mul i64 %l35.i, 20
  %v105 = add i64 %v104, %l33.i
  %v106 = getelementptr float, ptr %s3, i64 %v105
  store <4 x float> %v103, ptr %v106, align 4
  %l35.next = add nuw nsw i64 %l35.i, 1
  %v107 = icmp slt i64 %l35.next, 1
  br i1 %v107, label %l35.body, label %l35.end
l35.end:
  %l33.next = add nuw nsw i64 %l33.i, 4
  %v108 = icmp slt i64 %l33.next, %v32
  br i1 %v108, label %l33.body, label %l33.end
l33.end:
  %v110 = icmp slt i64 0, 1
  br i1 %v110, label %l109.body, label %l109.end
l109.body:
  %l109.i = phi i64 [ 0, %l33.end ], [ %l109.next, %l252.end ]
  %v111 = getelementptr float, ptr %s4, i64 %l109.i
  %v112 = load float, ptr %v111
  %v115 = insertelement <4 x float> poison, float %v112, i32 0
  %v116 = shufflevector <4 x float> %v115, <4 x float> poison, <4 x i32> zeroinitializer
  store <4 x float> %v116, ptr %s113
  %v118 = icmp slt i64 0, %v32
  br i1 %v118, label %l117.body, label %l117.end
l117.body:
  %l117.i = phi i64 [ 0, %l109.body ], [ %l117.next, %l117.body ]
  %v119 = sub i64 %size0, %l29.i
  %v120 = sub i64 %v119, %l117.i
  %v121 = trunc i64 %v120 to i32
  %v122 = insertelement <4 x i32> poison, i32 %v121, i32 0
  %v123 = shufflevector <4 x i32> %v122, <4 x i32> poison, <4 x i32> zeroinitializer
  %v124 = icmp slt <4 x i32> <i32 0, i32 1, i32 2, i32 3>, %v123
  %v125 = mul i64 %l109.i, 20
  %v126 = add i64 %v125, %l117.i
  %v127 = add i64 %l29.i, %l117.i
  %v128 = getelementptr float, ptr %s3, i64 %v126
  %v129 = load <4 x float>, ptr %v128, align 4
  %v130 = fmul contract <4 x float> %v129, splat (float 0x3FE0000000000000)
  %v131 = select <4 x i1> %v124, <4 x float> %v130, <4 x float> splat (float 0xFFF0000000000000)
  %v132 = load <4 x float>, ptr %s113
  %v133 = fcmp ogt <4 x float> %v131, %v132
  %v134 = load <4 x float>, ptr %s113
  %v135 = select <4 x i1> %v133, <4 x float> %v131, <4 x float> %v134
  store <4 x float> %v135, ptr %s113
  %v136 = getelementptr float, ptr %s3, i64 %v126
  store <4 x float> %v131, ptr %v136, align 4
  %l117.next = add nuw nsw i64 %l117.i, 4
  %v137 = icmp slt i64 %l117.next, %v32
  br i1 %v137, label %l117.body, label %l117.end
l117.end:
  %v138 = load <4 x float>, ptr %s113
  %v139 = shufflevector <4 x float> %v138, <4 x float> %v138, <2 x i32> <i32 0, i32 1>
  %v140 = shufflevector <4 x float> %v138, <4 x float> %v138, <2 x i32> <i32 2, i32 3>
  %v141 = fcmp ogt <2 x float> %v139, %v140
  %v142 = fcmp uno <2 x float> %v139, %v139
  %v143 = select <2 x i1> %v141, <2 x float> %v139, <2 x float> %v140
  %v144 = select <2 x i1> %v142, <2 x float> %v139, <2 x float> %v143
  %v145 = shufflevector <2 x float> %v144, <2 x float> %v144, <1 x i32> <i32 0>
  %v146 = shufflevector <2 x float> %v144, <2 x float> %v144, <1 x i32> <i32 1>
  %v147 = fcmp ogt <1 x float> %v145, %v146
  %v148 = fcmp uno <1 x float> %v145, %v145
  %v149 = select <1 x i1> %v147, <1 x float> %v145, <1 x float> %v146
  %v150 = select <1 x i1> %v148, <1 x float> %v145, <1 x float> %v149
  %v151 = extractelement <1 x float> %v150, i32 0
  %v152 = getelementptr float, ptr %s4, i64 %l109.i
  store float %v151, ptr %v152
  %v153 = fcmp oeq float %v151, 0xFFF0000000000000
  %v154 = select i1 %v153, float 0x0000000000000000, float %v151
  %v155 = fsub float %v112, %v154
  %v156 = insertelement <4 x float> poison, float %v155, i32 0
  %v157 = shufflevector <4 x float> %v156, <4 x float> poison, <4 x i32> zeroinitializer
  %v158 = fcmp olt <4 x float> %v157, splat (float 0xC05A000000000000)
  %v159 = select <4 x i1> %v158, <4 x float> splat (float 0x0000000000000000), <4 x float> %v157
  %v160 = fcmp ogt <4 x float> %v159, splat (float 0x4056400000000000)
  %v161 = select <4 x i1> %v160, <4 x float> splat (float 0x4056400000000000), <4 x float> %v159
  %v162 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v161, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v163 = fsub <4 x float> %v162, splat (float 0x4168000000000000)
  %v164 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v163, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v161)
  %v165 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v163, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v164)
  %v166 = fmul <4 x float> %v165, %v165
  %v167 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v165, <4 x float> splat (float 0x3F56D49200000000))
  %v168 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v167, <4 x float> %v165, <4 x float> splat (float 0x3F81110E00000000))
  %v169 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v168, <4 x float> %v165, <4 x float> splat (float 0x3FA5554E40000000))
  %v170 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v169, <4 x float> %v165, <4 x float> splat (float 0x3FC5555560000000))
  %v171 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v170, <4 x float> %v165, <4 x float> splat (float 0x3FE0000000000000))
  %v172 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v166, <4 x float> %v171, <4 x float> %v165)
  %v173 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v174 = bitcast <4 x float> %v162 to <4 x i32>
  %v175 = sub <4 x i32> %v174, %v173
  %v176 = ashr <4 x i32> %v175, splat (i32 1)
  %v177 = fadd <4 x float> %v172, splat (float 0x3FF0000000000000)
  %v178 = add <4 x i32> %v176, splat (i32 127)
  %v179 = shl <4 x i32> %v178, splat (i32 23)
  %v180 = bitcast <4 x i32> %v179 to <4 x float>
  %v181 = fmul <4 x float> %v177, %v180
  %v182 = sub <4 x i32> %v175, %v176
  %v183 = add <4 x i32> %v182, splat (i32 127)
  %v184 = shl <4 x i32> %v183, splat (i32 23)
  %v185 = bitcast <4 x i32> %v184 to <4 x float>
  %v186 = fmul <4 x float> %v181, %v185
  %v187 = select <4 x i1> %v158, <4 x float> splat (float 0x0000000000000000), <4 x float> %v186
  %v188 = extractelement <4 x float> %v187, i32 0
  store <4 x float> splat (float 0x0000000000000000), ptr %s114
  %v190 = icmp slt i64 0, %v32
  br i1 %v190, label %l189.body, label %l189.end
l189.body:
  %l189.i = phi i64 [ 0, %l117.end ], [ %l189.next, %l189.body ]
  %v191 = sub i64 %size0, %l29.i
  %v192 = sub i64 %v191, %l189.i
  %v193 = trunc i64 %v192 to i32
  %v194 = insertelement <4 x i32> poison, i32 %v193, i32 0
  %v195 = shufflevector <4 x i32> %v194, <4 x i32> poison, <4 x i32> zeroinitializer
  %v196 = icmp slt <4 x i32> <i32 0, i32 1, i32 2, i32 3>, %v195
  %v197 = mul i64 %l109.i, 20
  %v198 = add i64 %v197, %l189.i
  %v199 = add i64 %l29.i, %l189.i
  %v200 = getelementptr float, ptr %s3, i64 %v198
  %v201 = load <4 x float>, ptr %v200, align 4
  %v202 = insertelement <4 x float> poison, float %v154, i32 0
  %v203 = shufflevector <4 x float> %v202, <4 x float> poison, <4 x i32> zeroinitializer
  %v204 = fsub <4 x float> %v201, %v203
  %v205 = fcmp olt <4 x float> %v204, splat (float 0xC05A000000000000)
  %v206 = select <4 x i1> %v205, <4 x float> splat (float 0x0000000000000000), <4 x float> %v204
  %v207 = fcmp ogt <4 x float> %v206, splat (float 0x4056400000000000)
  %v208 = select <4 x i1> %v207, <4 x float> splat (float 0x4056400000000000), <4 x float> %v206
  %v209 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v208, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v210 = fsub <4 x float> %v209, splat (float 0x4168000000000000)
  %v211 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v210, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v208)
  %v212 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v210, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v211)
  %v213 = fmul <4 x float> %v212, %v212
  %v214 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v212, <4 x float> splat (float 0x3F56D49200000000))
  %v215 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v214, <4 x float> %v212, <4 x float> splat (float 0x3F81110E00000000))
  %v216 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v215, <4 x float> %v212, <4 x float> splat (float 0x3FA5554E40000000))
  %v217 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v216, <4 x float> %v212, <4 x float> splat (float 0x3FC5555560000000))
  %v218 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v217, <4 x float> %v212, <4 x float> splat (float 0x3FE0000000000000))
  %v219 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v213, <4 x float> %v218, <4 x float> %v212)
  %v220 = bitcast <4 x float> splat (float 0x4168000000000000) to <4 x i32>
  %v221 = bitcast <4 x float> %v209 to <4 x i32>
  %v222 = sub <4 x i32> %v221, %v220
  %v223 = ashr <4 x i32> %v222, splat (i32 1)
  %v224 = fadd <4 x float> %v219, splat (float 0x3FF0000000000000)
  %v225 = add <4 x i32> %v223, splat (i32 127)
  %v226 = shl <4 x i32> %v225, splat (i32 23)
  %v227 = bitcast <4 x i32> %v226 to <4 x float>
  %v228 = fmul <4 x float> %v224, %v227
  %v229 = sub <4 x i32> %v222, %v223
  %v230 = add <4 x i32> %v229, splat (i32 127)
  %v231 = shl <4 x i32> %v230, splat (i32 23)
  %v232 = bitcast <4 x i32> %v231 to <4 x float>
  %v233 = fmul <4 x float> %v228, %v232
  %v234 = select <4 x i1> %v205, <4 x float> splat (float 0x0000000000000000), <4 x float> %v233
  %v235 = getelementptr float, ptr %s3, i64 %v198
  store <4 x float> %v234, ptr %v235, align 4
  %v236 = load <4 x float>, ptr %s114
  %v237 = fadd <4 x float> %v236, %v234
  store <4 x float> %v237, ptr %s114
  %l189.next = add nuw nsw i64 %l189.i, 4
  %v238 = icmp slt i64 %l189.next, %v32
  br i1 %v238, label %l189.body, label %l189.end
l189.end:
  %v239 = getelementptr float, ptr %s5, i64 %l109.i
  %v240 = load float, ptr %v239
  %v241 = fmul float %v240, %v188
  %v242 = load <4 x float>, ptr %s114
  %v243 = shufflevector <4 x float> %v242, <4 x float> %v242, <2 x i32> <i32 0, i32 1>
  %v244 = shufflevector <4 x float> %v242, <4 x float> %v242, <2 x i32> <i32 2, i32 3>
  %v245 = fadd contract <2 x float> %v243, %v244
  %v246 = shufflevector <2 x float> %v245, <2 x float> %v245, <1 x i32> <i32 0>
  %v247 = shufflevector <2 x float> %v245, <2 x float> %v245, <1 x i32> <i32 1>
  %v248 = fadd contract <1 x float> %v246, %v247
  %v249 = extractelement <1 x float> %v248, i32 0
  %v250 = fadd float %v241, %v249
  %v251 = getelementptr float, ptr %s5, i64 %l109.i
  store float %v250, ptr %v251
  %v253 = icmp slt i64 0, 4
  br i1 %v253, label %l252.body, label %l252.end
l252.body:
  %l252.i = phi i64 [ 0, %l189.end ], [ %l252.next, %l252.body ]
  %v254 = mul i64 %l109.i, 4
  %v255 = add i64 %v254, %l252.i
  %v256 = getelementptr float, ptr %s2, i64 %v255
  %v257 = load <4 x float>, ptr %v256, align 4
  %v258 = insertelement <4 x float> poison, float %v188, i32 0
  %v259 = shufflevector <4 x float> %v258, <4 x float> poison, <4 x i32> zeroinitializer
  %v260 = fmul <4 x float> %v257, %v259
  %v261 = getelementptr float, ptr %s2, i64 %v255
  store <4 x float> %v260, ptr %v261, align 4
  %l252.next = add nuw nsw i64 %l252.i, 4
  %v262 = icmp slt i64 %l252.next, 4
  br i1 %v262, label %l252.body, label %l252.end
l252.end:
  %l109.next = add nuw nsw i64 %l109.i, 1
  %v263 = icmp slt i64 %l109.next, 1
  br i1 %v263, label %l109.body, label %l109.end
l109.end:
  %v265 = icmp slt i64 0, 4
  br i1 %v265, label %l264.body, label %l264.end
l264.body:
  %l264.i = phi i64 [ 0, %l109.end ], [ %l264.next, %l269.end ]
  %v267 = getelementptr float, ptr %s2, i64 %l264.i
  %v268 = load <4 x float>, ptr %v267, align 4
  store <4 x float> %v268, ptr %s266
  %v270 = icmp slt i64 0, %v32
  br i1 %v270, label %l269.body, label %l269.end
l269.body:
  %l269.i = phi i64 [ 0, %l264.body ], [ %l269.next, %l269.body ]
  %v271 = add i64 %l29.i, %l269.i
  %v272 = mul i64 %l6.i, %size2
  %v273 = mul i64 %v271, 4
  %v274 = add i64 %v272, %v273
  %v275 = add i64 %v274, %l264.i
  %v276 = getelementptr float, ptr %p2, i64 %v275
  %v277 = load <4 x float>, ptr %v276, align 4
  %v278 = getelementptr float, ptr %s3, i64 %l269.i
  %v279 = load float, ptr %v278
  %v280 = insertelement <4 x float> poison, float %v279, i32 0
  %v281 = shufflevector <4 x float> %v280, <4 x float> poison, <4 x i32> zeroinitializer
  %v282 = load <4 x float>, ptr %s266
  %v283 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v281, <4 x float> %v277, <4 x float> %v282)
  store <4 x float> %v283, ptr %s266
  %l269.next = add nuw nsw i64 %l269.i, 1
  %v284 = icmp slt i64 %l269.next, %v32
  br i1 %v284, label %l269.body, label %l269.end
l269.end:
  %v285 = load <4 x float>, ptr %s266
  %v286 = getelementptr float, ptr %s2, i64 %l264.i
  store <4 x float> %v285, ptr %v286, align 4
  %l264.next = add nuw nsw i64 %l264.i, 4
  %v287 = icmp slt i64 %l264.next, 4
  br i1 %v287, label %l264.body, label %l264.end
l264.end:
  %l29.next = add nuw nsw i64 %l29.i, 16
  %v288 = icmp slt i64 %l29.next, %size0
  br i1 %v288, label %l29.body, label %l29.end
l29.end:
  %v290 = icmp slt i64 0, 1
  br i1 %v290, label %l289.body, label %l289.end
l289.body:
  %l289.i = phi i64 [ 0, %l29.end ], [ %l289.next, %l291.end ]
  %v292 = icmp slt i64 0, 4
  br i1 %v292, label %l291.body, label %l291.end
l291.body:
  %l291.i = phi i64 [ 0, %l289.body ], [ %l291.next, %l291.body ]
  %v293 = mul i64 %l289.i, 4
  %v294 = add i64 %v293, %l291.i
  %v295 = getelementptr float, ptr %s2, i64 %v294
  %v296 = load <4 x float>, ptr %v295, align 4
  %v297 = getelementptr float, ptr %s5, i64 %l289.i
  %v298 = load float, ptr %v297
  %v299 = fdiv float 0x3FF0000000000000, %v298
  %v300 = insertelement <4 x float> poison, float %v299, i32 0
  %v301 = shufflevector <4 x float> %v300, <4 x float> poison, <4 x i32> zeroinitializer
  %v302 = fmul <4 x float> %v296, %v301
  %v303 = getelementptr float, ptr %s2, i64 %v294
  store <4 x float> %v302, ptr %v303, align 4
  %l291.next = add nuw nsw i64 %l291.i, 4
  %v304 = icmp slt i64 %l291.next, 4
  br i1 %v304, label %l291.body, label %l291.end
l291.end:
  %l289.next = add nuw nsw i64 %l289.i, 1
  %v305 = icmp slt i64 %l289.next, 1
  br i1 %v305, label %l289.body, label %l289.end
l289.end:
  %v307 = icmp slt i64 0, 1
  br i1 %v307, label %l306.body, label %l306.end
l306.body:
  %l306.i = phi i64 [ 0, %l289.end ], [ %l306.next, %l308.end ]
  %v309 = icmp slt i64 0, 4
  br i1 %v309, label %l308.body, label %l308.end
l308.body:
  %l308.i = phi i64 [ 0, %l306.body ], [ %l308.next, %l308.body ]
  %v310 = mul i64 %l306.i, 4
  %v311 = add i64 %v310, %l308.i
  %v312 = getelementptr float, ptr %s2, i64 %v311
  %v313 = load <4 x float>, ptr %v312, align 4
  %v314 = mul i64 %l6.i, 4
  %v315 = add i64 %v314, %l308.i
  %v316 = getelementptr float, ptr %p3, i64 %v315
  store <4 x float> %v313, ptr %v316, align 4
  %l308.next = add nuw nsw i64 %l308.i, 4
  %v317 = icmp slt i64 %l308.next, 4
  br i1 %v317, label %l308.body, label %l308.end
l308.end:
  %l306.next = add nuw nsw i64 %l306.i, 1
  %v318 = icmp slt i64 %l306.next, 1
  br i1 %v318, label %l306.body, label %l306.end
l306.end:
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v319 = icmp slt i64 %l6.next, %last
  br i1 %v319, label %l6.body, label %l6.end
l6.end:
  ret void
}
