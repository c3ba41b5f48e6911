; conv 3x3 8->8
; problem   images=150 height=4 width=4 depth=8 out_y=2 out_x=2 first_y=0 first_x=0 n=8 step=1  (an example: each run decides its sizes)
; schedule  lanes=8 outputs=2 block=4 mr=1 nv=1 part=32 panels=1
; engine    contraction/winograd

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
  %s1 = alloca [576 x float], align 64
  %s2 = alloca [576 x float], align 64
  %s3 = alloca [8 x float], align 64
  %s4 = alloca [32 x float], align 64
  %s5 = alloca [64 x i64], align 64
  %s10 = alloca i64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s242 = alloca <8 x float>
  %v7 = icmp slt i64 0, 8
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ 0, %entry ], [ %l6.next, %l6.body ]
  %v8 = getelementptr float, ptr %s3, i64 %l6.i
  store <8 x float> splat (float 0x0000000000000000), ptr %v8
  %l6.next = add nuw nsw i64 %l6.i, 8
  %v9 = icmp slt i64 %l6.next, 8
  br i1 %v9, label %l6.body, label %l6.end
l6.end:
  store i64 -1, ptr %s10
  %v12 = icmp slt i64 %first, %last
  br i1 %v12, label %l11.body, label %l11.end
l11.body:
  %l11.i = phi i64 [ %first, %l6.end ], [ %l11.next, %l222.end ]
  %v13 = mul i64 %l11.i, 4
  %v14 = sub i64 %size0, %v13
  %v15 = call i64 @llvm.smin.i64(i64 %v14, i64 4)
  %v16 = call i64 @llvm.smin.i64(i64 1, i64 1)
  %v17 = load i64, ptr %s10
  %v18 = icmp ne i64 %v17, %l11.i
  br i1 %v18, label %w19.then, label %w19.end
w19.then:
  %v20 = call i64 @llvm.smin.i64(i64 8, i64 8)
  %v22 = icmp slt i64 0, %v15
  br i1 %v22, label %l21.body, label %l21.end
l21.body:
  %l21.i = phi i64 [ 0, %w19.then ], [ %l21.next, %l91.end ]
  %v23 = add i64 %v13, %l21.i
  %v24 = add <4 x i64> splat (i64 0), <i64 0, i64 1, i64 2, i64 3>
  %v25 = icmp ult <4 x i64> %v24, splat (i64 4)
  %v26 = mul <4 x i64> %v24, splat (i64 32)
  %v27 = getelementptr float, ptr %p0, i64 0
  %v28 = ptrtoint ptr %v27 to i64
  %v29 = ptrtoint ptr %s3 to i64
  %v30 = mul i64 %v23, 4
  %v31 = mul i64 %v30, 128
  %v32 = add i64 %v28, %v31
  %v33 = icmp ult i64 0, 4
  %v34 = insertelement <4 x i1> poison, i1 %v33, i32 0
  %v35 = shufflevector <4 x i1> %v34, <4 x i1> poison, <4 x i32> zeroinitializer
  %v36 = and <4 x i1> %v25, %v35
  %v37 = insertelement <4 x i64> poison, i64 %v32, i32 0
  %v38 = shufflevector <4 x i64> %v37, <4 x i64> poison, <4 x i32> zeroinitializer
  %v39 = add <4 x i64> %v26, %v38
  %v40 = insertelement <4 x i64> poison, i64 %v29, i32 0
  %v41 = shufflevector <4 x i64> %v40, <4 x i64> poison, <4 x i32> zeroinitializer
  %v42 = select <4 x i1> %v36, <4 x i64> %v39, <4 x i64> %v41
  %v43 = getelementptr i64, ptr %s5, i64 0
  store <4 x i64> %v42, ptr %v43, align 8
  %v44 = mul i64 %v23, 4
  %v45 = add i64 %v44, 1
  %v46 = mul i64 %v45, 128
  %v47 = add i64 %v28, %v46
  %v48 = icmp ult i64 1, 4
  %v49 = insertelement <4 x i1> poison, i1 %v48, i32 0
  %v50 = shufflevector <4 x i1> %v49, <4 x i1> poison, <4 x i32> zeroinitializer
  %v51 = and <4 x i1> %v25, %v50
  %v52 = insertelement <4 x i64> poison, i64 %v47, i32 0
  %v53 = shufflevector <4 x i64> %v52, <4 x i64> poison, <4 x i32> zeroinitializer
  %v54 = add <4 x i64> %v26, %v53
  %v55 = insertelement <4 x i64> poison, i64 %v29, i32 0
  %v56 = shufflevector <4 x i64> %v55, <4 x i64> poison, <4 x i32> zeroinitializer
  %v57 = select <4 x i1> %v51, <4 x i64> %v54, <4 x i64> %v56
  %v58 = getelementptr i64, ptr %s5, i64 8
  store <4 x i64> %v57, ptr %v58, align 8
  %v59 = mul i64 %v23, 4
  %v60 = add i64 %v59, 2
  %v61 = mul i64 %v60, 128
  %v62 = add i64 %v28, %v61
  %v63 = icmp ult i64 2, 4
  %v64 = insertelement <4 x i1> poison, i1 %v63, i32 0
  %v65 = shufflevector <4 x i1> %v64, <4 x i1> poison, <4 x i32> zeroinitializer
  %v66 = and <4 x i1> %v25, %v65
  %v67 = insertelement <4 x i64> poison, i64 %v62, i32 0
  %v68 = shufflevector <4 x i64> %v67, <4 x i64> poison, <4 x i32> zeroinitializer
  %v69 = add <4 x i64> %v26, %v68
  %v70 = insertelement <4 x i64> poison, i64 %v29, i32 0
  %v71 = shufflevector <4 x i64> %v70, <4 x i64> poison, <4 x i32> zeroinitializer
  %v72 = select <4 x i1> %v66, <4 x i64> %v69, <4 x i64> %v71
  %v73 = getelementptr i64, ptr %s5, i64 16
  store <4 x i64> %v72, ptr %v73, align 8
  %v74 = mul i64 %v23, 4
  %v75 = add i64 %v74, 3
  %v76 = mul i64 %v75, 128
  %v77 = add i64 %v28, %v76
  %v78 = icmp ult i64 3, 4
  %v79 = insertelement <4 x i1> poison, i1 %v78, i32 0
  %v80 = shufflevector <4 x i1> %v79, <4 x i1> poison, <4 x i32> zeroinitializer
  %v81 = and <4 x i1> %v25, %v80
  %v82 = insertelement <4 x i64> poison, i64 %v77, i32 0
  %v83 = shufflevector <4 x i64> %v82, <4 x i64> poison, <4 x i32> zeroinitializer
  %v84 = add <4 x i64> %v26, %v83
  %v85 = insertelement <4 x i64> poison, i64 %v29, i32 0
  %v86 = shufflevector <4 x i64> %v85, <4 x i64> poison, <4 x i32> zeroinitializer
  %v87 = select <4 x i1> %v81, <4 x i64> %v84, <4 x i64> %v86
  %v88 = getelementptr i64, ptr %s5, i64 24
  store <4 x i64> %v87, ptr %v88, align 8
  %v89 = mul i64 %l21.i, 144
  %v90 = getelementptr float, ptr %s1, i64 %v89
  %v92 = icmp slt i64 0, %v20
  br i1 %v92, label %l91.body, label %l91.end
l91.body:
  %l91.i = phi i64 [ 0, %l21.body ], [ %l91.next, %l91.body ]
  %v93 = getelementptr i64, ptr %s5, i64 0
  %v94 = load ptr, ptr %v93
  %v95 = getelementptr float, ptr %v94, i64 %l91.i
  %v96 = load <8 x float>, ptr %v95, align 4
  %v97 = getelementptr i64, ptr %s5, i64 8
  %v98 = load ptr, ptr %v97
  %v99 = getelementptr float, ptr %v98, i64 %l91.i
  %v100 = load <8 x float>, ptr %v99, align 4
  %v101 = getelementptr i64, ptr %s5, i64 16
  %v102 = load ptr, ptr %v101
  %v103 = getelementptr float, ptr %v102, i64 %l91.i
  %v104 = load <8 x float>, ptr %v103, align 4
  %v105 = getelementptr i64, ptr %s5, i64 24
  %v106 = load ptr, ptr %v105
  %v107 = getelementptr float, ptr %v106, i64 %l91.i
  %v108 = load <8 x float>, ptr %v107, align 4
  %v109 = fsub <8 x float> %v96, %v104
  %v110 = fadd <8 x float> %v104, %v100
  %v111 = fsub <8 x float> %v104, %v100
  %v112 = fsub <8 x float> %v108, %v100
  %v113 = getelementptr i64, ptr %s5, i64 1
  %v114 = load ptr, ptr %v113
  %v115 = getelementptr float, ptr %v114, i64 %l91.i
  %v116 = load <8 x float>, ptr %v115, align 4
  %v117 = getelementptr i64, ptr %s5, i64 9
  %v118 = load ptr, ptr %v117
  %v119 = getelementptr float, ptr %v118, i64 %l91.i
  %v120 = load <8 x float>, ptr %v119, align 4
  %v121 = getelementptr i64, ptr %s5, i64 17
  %v122 = load ptr, ptr %v121
  %v123 = getelementptr float, ptr %v122, i64 %l91.i
  %v124 = load <8 x float>, ptr %v123, align 4
  %v125 = getelementptr i64, ptr %s5, i64 25
  %v126 = load ptr, ptr %v125
  %v127 = getelementptr float, ptr %v126, i64 %l91.i
  %v128 = load <8 x float>, ptr %v127, align 4
  %v129 = fsub <8 x float> %v116, %v124
  %v130 = fadd <8 x float> %v124, %v120
  %v131 = fsub <8 x float> %v124, %v120
  %v132 = fsub <8 x float> %v128, %v120
  %v133 = getelementptr i64, ptr %s5, i64 2
  %v134 = load ptr, ptr %v133
  %v135 = getelementptr float, ptr %v134, i64 %l91.i
  %v136 = load <8 x float>, ptr %v135, align 4
  %v137 = getelementptr i64, ptr %s5, i64 10
  %v138 = load ptr, ptr %v137
  %v139 = getelementptr float, ptr %v138, i64 %l91.i
  %v140 = load <8 x float>, ptr %v139, align 4
  %v141 = getelementptr i64, ptr %s5, i64 18
  %v142 = load ptr, ptr %v141
  %v143 = getelementptr float, ptr %v142, i64 %l91.i
  %v144 = load <8 x float>, ptr %v143, align 4
  %v145 = getelementptr i64, ptr %s5, i64 26
  %v146 = load ptr, ptr %v145
  %v147 = getelementptr float, ptr %v146, i64 %l91.i
  %v148 = load <8 x float>, ptr %v147, align 4
  %v149 = fsub <8 x float> %v136, %v144
  %v150 = fadd <8 x float> %v144, %v140
  %v151 = fsub <8 x float> %v144, %v140
  %v152 = fsub <8 x float> %v148, %v140
  %v153 = getelementptr i64, ptr %s5, i64 3
  %v154 = load ptr, ptr %v153
  %v155 = getelementptr float, ptr %v154, i64 %l91.i
  %v156 = load <8 x float>, ptr %v155, align 4
  %v157 = getelementptr i64, ptr %s5, i64 11
  %v158 = load ptr, ptr %v157
  %v159 = getelementptr float, ptr %v158, i64 %l91.i
  %v160 = load <8 x float>, ptr %v159, align 4
  %v161 = getelementptr i64, ptr %s5, i64 19
  %v162 = load ptr, ptr %v161
  %v163 = getelementptr float, ptr %v162, i64 %l91.i
  %v164 = load <8 x float>, ptr %v163, align 4
  %v165 = getelementptr i64, ptr %s5, i64 27
  %v166 = load ptr, ptr %v165
  %v167 = getelementptr float, ptr %v166, i64 %l91.i
  %v168 = load <8 x float>, ptr %v167, align 4
  %v169 = fsub <8 x float> %v156, %v164
  %v170 = fadd <8 x float> %v164, %v160
  %v171 = fsub <8 x float> %v164, %v160
  %v172 = fsub <8 x float> %v168, %v160
  %v173 = fsub <8 x float> %v109, %v149
  %v174 = fadd <8 x float> %v149, %v129
  %v175 = fsub <8 x float> %v149, %v129
  %v176 = fsub <8 x float> %v169, %v129
  %v177 = getelementptr float, ptr %v90, i64 %l91.i
  store <8 x float> %v173, ptr %v177
  %v178 = add i64 %l91.i, 8
  %v179 = getelementptr float, ptr %v90, i64 %v178
  store <8 x float> %v174, ptr %v179
  %v180 = add i64 %l91.i, 16
  %v181 = getelementptr float, ptr %v90, i64 %v180
  store <8 x float> %v175, ptr %v181
  %v182 = add i64 %l91.i, 24
  %v183 = getelementptr float, ptr %v90, i64 %v182
  store <8 x float> %v176, ptr %v183
  %v184 = fsub <8 x float> %v110, %v150
  %v185 = fadd <8 x float> %v150, %v130
  %v186 = fsub <8 x float> %v150, %v130
  %v187 = fsub <8 x float> %v170, %v130
  %v188 = add i64 %l91.i, 32
  %v189 = getelementptr float, ptr %v90, i64 %v188
  store <8 x float> %v184, ptr %v189
  %v190 = add i64 %l91.i, 40
  %v191 = getelementptr float, ptr %v90, i64 %v190
  store <8 x float> %v185, ptr %v191
  %v192 = add i64 %l91.i, 48
  %v193 = getelementptr float, ptr %v90, i64 %v192
  store <8 x float> %v186, ptr %v193
  %v194 = add i64 %l91.i, 56
  %v195 = getelementptr float, ptr %v90, i64 %v194
  store <8 x float> %v187, ptr %v195
  %v196 = fsub <8 x float> %v111, %v151
  %v197 = fadd <8 x float> %v151, %v131
  %v198 = fsub <8 x float> %v151, %v131
  %v199 = fsub <8 x float> %v171, %v131
  %v200 = add i64 %l91.i, 64
  %v201 = getelementptr float, ptr %v90, i64 %v200
  store <8 x float> %v196, ptr %v201
  %v202 = add i64 %l91.i, 72
  %v203 = getelementptr float, ptr %v90, i64 %v202
  store <8 x float> %v197, ptr %v203
  %v204 = add i64 %l91.i, 80
  %v205 = getelementptr float, ptr %v90, i64 %v204
  store <8 x float> %v198, ptr %v205
  %v206 = add i64 %l91.i, 88
  %v207 = getelementptr float, ptr %v90, i64 %v206
  store <8 x float> %v199, ptr %v207
  %v208 = fsub <8 x float> %v112, %v152
  %v209 = fadd <8 x float> %v152, %v132
  %v210 = fsub <8 x float> %v152, %v132
  %v211 = fsub <8 x float> %v172, %v132
  %v212 = add i64 %l91.i, 96
  %v213 = getelementptr float, ptr %v90, i64 %v212
  store <8 x float> %v208, ptr %v213
  %v214 = add i64 %l91.i, 104
  %v215 = getelementptr float, ptr %v90, i64 %v214
  store <8 x float> %v209, ptr %v215
  %v216 = add i64 %l91.i, 112
  %v217 = getelementptr float, ptr %v90, i64 %v216
  store <8 x float> %v210, ptr %v217
  %v218 = add i64 %l91.i, 120
  %v219 = getelementptr float, ptr %v90, i64 %v218
  store <8 x float> %v211, ptr %v219
  %l91.next = add nuw nsw i64 %l91.i, 8
  %v220 = icmp slt i64 %l91.next, %v20
  br i1 %v220, label %l91.body, label %l91.end
l91.end:
  %l21.next = add nuw nsw i64 %l21.i, 1
  %v221 = icmp slt i64 %l21.next, %v15
  br i1 %v221, label %l21.body, label %l21.end
l21.end:
  br label %w19.end
w19.end:
  store i64 %l11.i, ptr %s10
  %v223 = icmp slt i64 0, %v16
  br i1 %v223, label %l222.body, label %l222.end
l222.body:
  %l222.i = phi i64 [ 0, %w19.end ], [ %l222.next, %l313.end ]
  %v224 = call i64 @llvm.smin.i64(i64 8, i64 8)
  %v226 = icmp slt i64 0, 16
  br i1 %v226, label %l225.body, label %l225.end
l225.body:
  %l225.i = phi i64 [ 0, %l222.body ], [ %l225.next, %l236.end ]
  %v227 = mul i64 %l222.i, 16
  %v228 = add i64 %v227, %l225.i
  %v229 = mul i64 %v228, 8
  %v230 = mul i64 %v229, 8
  %v231 = getelementptr float, ptr %p3, i64 %v230
  %v232 = mul i64 %l225.i, 8
  %v233 = getelementptr float, ptr %s1, i64 %v232
  %v234 = mul i64 %l225.i, 8
  %v235 = getelementptr float, ptr %s2, i64 %v234
  %v237 = icmp slt i64 0, %v15
  br i1 %v237, label %l236.body, label %l236.end
l236.body:
  %l236.i = phi i64 [ 0, %l225.body ], [ %l236.next, %l250.end ]
  %v238 = mul i64 %l236.i, 144
  %v239 = getelementptr float, ptr %v233, i64 %v238
  %v240 = mul i64 %l236.i, 144
  %v241 = getelementptr float, ptr %v235, i64 %v240
  store <8 x float> splat (float 0x0000000000000000), ptr %s242
  %v243 = urem i64 8, 4
  %v244 = sub i64 8, %v243
  %v245 = udiv i64 8, 4
  %v246 = mul i64 %v245, 16
  %v247 = mul i64 %l236.i, %v246
  %v248 = add i64 %v247, 64
  %v249 = getelementptr float, ptr %v231, i64 %v248
  %v251 = icmp slt i64 0, %v244
  br i1 %v251, label %l250.body, label %l250.end
l250.body:
  %l250.i = phi i64 [ 0, %l236.body ], [ %l250.next, %l250.body ]
  %v252 = udiv i64 %l250.i, 4
  %v253 = mul i64 %v252, 16
  %v254 = getelementptr float, ptr %v249, i64 %v253
  call void @llvm.prefetch.p0(ptr %v254, i32 0, i32 2, i32 1)
  %v255 = mul i64 %l250.i, 8
  %v256 = getelementptr float, ptr %v231, i64 %v255
  %v257 = getelementptr float, ptr %v256, i64 0
  %v258 = load <8 x float>, ptr %v257, align 4
  %v259 = getelementptr float, ptr %v239, i64 %l250.i
  %v260 = getelementptr float, ptr %v259, i64 0
  %v261 = load float, ptr %v260
  %v262 = insertelement <8 x float> poison, float %v261, i32 0
  %v263 = shufflevector <8 x float> %v262, <8 x float> poison, <8 x i32> zeroinitializer
  %v264 = load <8 x float>, ptr %s242
  %v265 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v263, <8 x float> %v258, <8 x float> %v264)
  store <8 x float> %v265, ptr %s242
  %v266 = add i64 %l250.i, 1
  %v267 = mul i64 %v266, 8
  %v268 = getelementptr float, ptr %v231, i64 %v267
  %v269 = getelementptr float, ptr %v268, i64 0
  %v270 = load <8 x float>, ptr %v269, align 4
  %v271 = getelementptr float, ptr %v239, i64 %v266
  %v272 = getelementptr float, ptr %v271, i64 0
  %v273 = load float, ptr %v272
  %v274 = insertelement <8 x float> poison, float %v273, i32 0
  %v275 = shufflevector <8 x float> %v274, <8 x float> poison, <8 x i32> zeroinitializer
  %v276 = load <8 x float>, ptr %s242
  %v277 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v275, <8 x float> %v270, <8 x float> %v276)
  store <8 x float> %v277, ptr %s242
  %v278 = add i64 %l250.i, 2
  %v279 = mul i64 %v278, 8
  %v280 = getelementptr float, ptr %v231, i64 %v279
  %v281 = getelementptr float, ptr %v280, i64 0
  %v282 = load <8 x float>, ptr %v281, align 4
  %v283 = getelementptr float, ptr %v239, i64 %v278
  %v284 = getelementptr float, ptr %v283, i64 0
  %v285 = load float, ptr %v284
  %v286 = insertelement <8 x float> poison, float %v285, i32 0
  %v287 = shufflevector <8 x float> %v286, <8 x float> poison, <8 x i32> zeroinitializer
  %v288 = load <8 x float>, ptr %s242
  %v289 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v287, <8 x float> %v282, <8 x float> %v288)
  store <8 x float> %v289, ptr %s242
  %v290 = add i64 %l250.i, 3
  %v291 = mul i64 %v290, 8
  %v292 = getelementptr float, ptr %v231, i64 %v291
  %v293 = getelementptr float, ptr %v292, i64 0
  %v294 = load <8 x float>, ptr %v293, align 4
  %v295 = getelementptr float, ptr %v239, i64 %v290
  %v296 = getelementptr float, ptr %v295, i64 0
  %v297 = load float, ptr %v296
  %v298 = insertelement <8 x float> poison, float %v297, i32 0
  %v299 = shufflevector <8 x float> %v298, <8 x float> poison, <8 x i32> zeroinitializer
  %v300 = load <8 x float>, ptr %s242
  %v301 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v299, <8 x float> %v294, <8 x float> %v300)
  store <8 x float> %v301, ptr %s242
  %l250.next = add nuw nsw i64 %l250.i, 4
  %v302 = icmp slt i64 %l250.next, %v244
  br i1 %v302, label %l250.body, label %l250.end
l250.end:
  %v303 = getelementptr float, ptr %v241, i64 0
  %v304 = load <8 x float>, ptr %s242
  store <8 x float> %v304, ptr %v303
  %l236.next = add nuw nsw i64 %l236.i, 1
  %v305 = icmp slt i64 %l236.next, %v15
  br i1 %v305, label %l236.body, label %l236.end
l236.end:
  %l225.next = add nuw nsw i64 %l225.i, 1
  %v306 = icmp slt i64 %l225.next, 16
  br i1 %v306, label %l225.body, label %l225.end
l225.end:
  %v307 = mul i64 %l222.i, 8
  %v308 = sub i64 8, %v307
  %v309 = add i64 %v308, 7
  %v310 = udiv i64 %v309, 8
  %v311 = call i64 @llvm.smin.i64(i64 %v310, i64 1)
  %v312 = getelementptr float, ptr %s2, i64 0
  %v314 = icmp slt i64 0, %v15
  br i1 %v314, label %l313.body, label %l313.end
l313.body:
  %l313.i = phi i64 [ 0, %l225.end ], [ %l313.next, %l318.end ]
  %v315 = add i64 %v13, %l313.i
  %v316 = call i64 @llvm.smin.i64(i64 2, i64 2)
  %v317 = call i64 @llvm.smin.i64(i64 2, i64 2)
  %v319 = icmp slt i64 0, %v311
  br i1 %v319, label %l318.body, label %l318.end
l318.body:
  %l318.i = phi i64 [ 0, %l313.body ], [ %l318.next, %l400.end ]
  %v320 = mul i64 %l313.i, 144
  %v321 = mul i64 %l318.i, 8
  %v322 = add i64 %v320, %v321
  %v323 = getelementptr float, ptr %v312, i64 %v322
  %v324 = load <8 x float>, ptr %v323
  %v325 = add i64 %v322, 32
  %v326 = getelementptr float, ptr %v312, i64 %v325
  %v327 = load <8 x float>, ptr %v326
  %v328 = add i64 %v322, 64
  %v329 = getelementptr float, ptr %v312, i64 %v328
  %v330 = load <8 x float>, ptr %v329
  %v331 = add i64 %v322, 96
  %v332 = getelementptr float, ptr %v312, i64 %v331
  %v333 = load <8 x float>, ptr %v332
  %v334 = fadd <8 x float> %v327, %v330
  %v335 = fsub <8 x float> %v327, %v330
  %v336 = fadd <8 x float> %v324, %v334
  %v337 = fadd <8 x float> %v335, %v333
  %v338 = add i64 %v322, 8
  %v339 = getelementptr float, ptr %v312, i64 %v338
  %v340 = load <8 x float>, ptr %v339
  %v341 = add i64 %v322, 40
  %v342 = getelementptr float, ptr %v312, i64 %v341
  %v343 = load <8 x float>, ptr %v342
  %v344 = add i64 %v322, 72
  %v345 = getelementptr float, ptr %v312, i64 %v344
  %v346 = load <8 x float>, ptr %v345
  %v347 = add i64 %v322, 104
  %v348 = getelementptr float, ptr %v312, i64 %v347
  %v349 = load <8 x float>, ptr %v348
  %v350 = fadd <8 x float> %v343, %v346
  %v351 = fsub <8 x float> %v343, %v346
  %v352 = fadd <8 x float> %v340, %v350
  %v353 = fadd <8 x float> %v351, %v349
  %v354 = add i64 %v322, 16
  %v355 = getelementptr float, ptr %v312, i64 %v354
  %v356 = load <8 x float>, ptr %v355
  %v357 = add i64 %v322, 48
  %v358 = getelementptr float, ptr %v312, i64 %v357
  %v359 = load <8 x float>, ptr %v358
  %v360 = add i64 %v322, 80
  %v361 = getelementptr float, ptr %v312, i64 %v360
  %v362 = load <8 x float>, ptr %v361
  %v363 = add i64 %v322, 112
  %v364 = getelementptr float, ptr %v312, i64 %v363
  %v365 = load <8 x float>, ptr %v364
  %v366 = fadd <8 x float> %v359, %v362
  %v367 = fsub <8 x float> %v359, %v362
  %v368 = fadd <8 x float> %v356, %v366
  %v369 = fadd <8 x float> %v367, %v365
  %v370 = add i64 %v322, 24
  %v371 = getelementptr float, ptr %v312, i64 %v370
  %v372 = load <8 x float>, ptr %v371
  %v373 = add i64 %v322, 56
  %v374 = getelementptr float, ptr %v312, i64 %v373
  %v375 = load <8 x float>, ptr %v374
  %v376 = add i64 %v322, 88
  %v377 = getelementptr float, ptr %v312, i64 %v376
  %v378 = load <8 x float>, ptr %v377
  %v379 = add i64 %v322, 120
  %v380 = getelementptr float, ptr %v312, i64 %v379
  %v381 = load <8 x float>, ptr %v380
  %v382 = fadd <8 x float> %v375, %v378
  %v383 = fsub <8 x float> %v375, %v378
  %v384 = fadd <8 x float> %v372, %v382
  %v385 = fadd <8 x float> %v383, %v381
  %v386 = fadd <8 x float> %v352, %v368
  %v387 = fsub <8 x float> %v352, %v368
  %v388 = fadd <8 x float> %v336, %v386
  %v389 = fadd <8 x float> %v387, %v384
  %v390 = getelementptr float, ptr %s4, i64 0
  store <8 x float> %v388, ptr %v390
  %v391 = getelementptr float, ptr %s4, i64 8
  store <8 x float> %v389, ptr %v391
  %v392 = fadd <8 x float> %v353, %v369
  %v393 = fsub <8 x float> %v353, %v369
  %v394 = fadd <8 x float> %v337, %v392
  %v395 = fadd <8 x float> %v393, %v385
  %v396 = getelementptr float, ptr %s4, i64 16
  store <8 x float> %v394, ptr %v396
  %v397 = getelementptr float, ptr %s4, i64 24
  store <8 x float> %v395, ptr %v397
  %v398 = mul i64 %l318.i, 8
  %v399 = add i64 %v307, %v398
  %v401 = icmp slt i64 0, %v316
  br i1 %v401, label %l400.body, label %l400.end
l400.body:
  %l400.i = phi i64 [ 0, %l318.body ], [ %l400.next, %l402.end ]
  %v403 = icmp slt i64 0, %v317
  br i1 %v403, label %l402.body, label %l402.end
l402.body:
  %l402.i = phi i64 [ 0, %l400.body ], [ %l402.next, %l402.body ]
  %v404 = mul i64 %l400.i, 2
  %v405 = add i64 %v404, %l402.i
  %v406 = mul i64 %v405, 8
  %v407 = getelementptr float, ptr %s4, i64 %v406
  %v408 = load <8 x float>, ptr %v407, align 64
  %v409 = mul i64 %v315, 32
  %v410 = mul i64 %l400.i, 16
  %v411 = add i64 %v409, %v410
  %v412 = mul i64 %l402.i, 8
  %v413 = add i64 %v411, %v412
  %v414 = add i64 %v413, %v399
  %v415 = getelementptr float, ptr %p1, i64 %v399
  %v416 = load <8 x float>, ptr %v415, align 4
  %v417 = fadd contract <8 x float> %v408, %v416
  %v418 = getelementptr float, ptr %p2, i64 %v414
  %v419 = load <8 x float>, ptr %v418, align 4
  %v420 = fadd contract <8 x float> %v417, %v419
  %v421 = fcmp olt <8 x float> %v420, splat (float 0x0000000000000000)
  %v422 = select <8 x i1> %v421, <8 x float> splat (float 0x0000000000000000), <8 x float> %v420
  %v423 = getelementptr float, ptr %p4, i64 %v414
  store <8 x float> %v422, ptr %v423, align 4
  %l402.next = add nuw nsw i64 %l402.i, 1
  %v424 = icmp slt i64 %l402.next, %v317
  br i1 %v424, label %l402.body, label %l402.end
l402.end:
  %l400.next = add nuw nsw i64 %l400.i, 1
  %v425 = icmp slt i64 %l400.next, %v316
  br i1 %v425, label %l400.body, label %l400.end
l400.end:
  %l318.next = add nuw nsw i64 %l318.i, 1
  %v426 = icmp slt i64 %l318.next, %v311
  br i1 %v426, label %l318.body, label %l318.end
l318.end:
  %l313.next = add nuw nsw i64 %l313.i, 1
  %v427 = icmp slt i64 %l313.next, %v15
  br i1 %v427, label %l313.body, label %l313.end
l313.end:
  %l222.next = add nuw nsw i64 %l222.i, 1
  %v428 = icmp slt i64 %l222.next, %v16
  br i1 %v428, label %l222.body, label %l222.end
l222.end:
  %l11.next = add nuw nsw i64 %l11.i, 1
  %v429 = icmp slt i64 %l11.next, %last
  br i1 %v429, label %l11.body, label %l11.end
l11.end:
  ret void
}
