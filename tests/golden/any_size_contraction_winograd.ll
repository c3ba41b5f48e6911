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
  %s6 = alloca i64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %s177 = alloca <8 x float>
  store <8 x float> splat (float 0x0000000000000000), ptr %s3
  store i64 -1, ptr %s6
  %v7 = icmp slt i64 %first, %last
  br i1 %v7, label %l8.body, label %l8.end
l8.body:
  %l8.i = phi i64 [ %first, %entry ], [ %l8.next, %l229.end ]
  %v9 = mul i64 %l8.i, 4
  %v10 = sub i64 %size0, %v9
  %v11 = call i64 @llvm.smin.i64(i64 %v10, i64 4)
  %v12 = load i64, ptr %s6
  %v13 = icmp ne i64 %v12, %l8.i
  br i1 %v13, label %w14.then, label %w14.end
w14.then:
  %v15 = icmp slt i64 0, %v11
  br i1 %v15, label %l16.body, label %l16.end
l16.body:
  %l16.i = phi i64 [ 0, %w14.then ], [ %l16.next, %l16.body ]
  %v17 = add i64 %v9, %l16.i
  %v18 = add <4 x i64> splat (i64 0), <i64 0, i64 1, i64 2, i64 3>
  %v19 = icmp ult <4 x i64> %v18, splat (i64 4)
  %v20 = mul <4 x i64> %v18, splat (i64 32)
  %v21 = ptrtoint ptr %p0 to i64
  %v22 = ptrtoint ptr %s3 to i64
  %v23 = mul i64 %v17, 4
  %v24 = mul i64 %v23, 128
  %v25 = add i64 %v21, %v24
  %v26 = icmp ult i64 0, 4
  %v27 = insertelement <4 x i1> poison, i1 %v26, i32 0
  %v28 = shufflevector <4 x i1> %v27, <4 x i1> poison, <4 x i32> zeroinitializer
  %v29 = and <4 x i1> %v19, %v28
  %v30 = insertelement <4 x i64> poison, i64 %v25, i32 0
  %v31 = shufflevector <4 x i64> %v30, <4 x i64> poison, <4 x i32> zeroinitializer
  %v32 = add <4 x i64> %v20, %v31
  %v33 = insertelement <4 x i64> poison, i64 %v22, i32 0
  %v34 = shufflevector <4 x i64> %v33, <4 x i64> poison, <4 x i32> zeroinitializer
  %v35 = select <4 x i1> %v29, <4 x i64> %v32, <4 x i64> %v34
  store <4 x i64> %v35, ptr %s5, align 8
  %v36 = add i64 %v23, 1
  %v37 = mul i64 %v36, 128
  %v38 = add i64 %v21, %v37
  %v39 = icmp ult i64 1, 4
  %v40 = insertelement <4 x i1> poison, i1 %v39, i32 0
  %v41 = shufflevector <4 x i1> %v40, <4 x i1> poison, <4 x i32> zeroinitializer
  %v42 = and <4 x i1> %v19, %v41
  %v43 = insertelement <4 x i64> poison, i64 %v38, i32 0
  %v44 = shufflevector <4 x i64> %v43, <4 x i64> poison, <4 x i32> zeroinitializer
  %v45 = add <4 x i64> %v20, %v44
  %v46 = select <4 x i1> %v42, <4 x i64> %v45, <4 x i64> %v34
  %v47 = getelementptr i64, ptr %s5, i64 8
  store <4 x i64> %v46, ptr %v47, align 8
  %v48 = add i64 %v23, 2
  %v49 = mul i64 %v48, 128
  %v50 = add i64 %v21, %v49
  %v51 = icmp ult i64 2, 4
  %v52 = insertelement <4 x i1> poison, i1 %v51, i32 0
  %v53 = shufflevector <4 x i1> %v52, <4 x i1> poison, <4 x i32> zeroinitializer
  %v54 = and <4 x i1> %v19, %v53
  %v55 = insertelement <4 x i64> poison, i64 %v50, i32 0
  %v56 = shufflevector <4 x i64> %v55, <4 x i64> poison, <4 x i32> zeroinitializer
  %v57 = add <4 x i64> %v20, %v56
  %v58 = select <4 x i1> %v54, <4 x i64> %v57, <4 x i64> %v34
  %v59 = getelementptr i64, ptr %s5, i64 16
  store <4 x i64> %v58, ptr %v59, align 8
  %v60 = add i64 %v23, 3
  %v61 = mul i64 %v60, 128
  %v62 = add i64 %v21, %v61
  %v63 = icmp ult i64 3, 4
  %v64 = insertelement <4 x i1> poison, i1 %v63, i32 0
  %v65 = shufflevector <4 x i1> %v64, <4 x i1> poison, <4 x i32> zeroinitializer
  %v66 = and <4 x i1> %v19, %v65
  %v67 = insertelement <4 x i64> poison, i64 %v62, i32 0
  %v68 = shufflevector <4 x i64> %v67, <4 x i64> poison, <4 x i32> zeroinitializer
  %v69 = add <4 x i64> %v20, %v68
  %v70 = select <4 x i1> %v66, <4 x i64> %v69, <4 x i64> %v34
  %v71 = getelementptr i64, ptr %s5, i64 24
  store <4 x i64> %v70, ptr %v71, align 8
  %v72 = mul i64 %l16.i, 144
  %v73 = getelementptr float, ptr %s1, i64 %v72
  %v74 = load ptr, ptr %s5
  %v75 = load <8 x float>, ptr %v74, align 4
  %v76 = load ptr, ptr %v47
  %v77 = load <8 x float>, ptr %v76, align 4
  %v78 = load ptr, ptr %v59
  %v79 = load <8 x float>, ptr %v78, align 4
  %v80 = load ptr, ptr %v71
  %v81 = load <8 x float>, ptr %v80, align 4
  %v82 = fsub <8 x float> %v75, %v79
  %v83 = fadd <8 x float> %v79, %v77
  %v84 = fsub <8 x float> %v79, %v77
  %v85 = fsub <8 x float> %v81, %v77
  %v86 = getelementptr i64, ptr %s5, i64 1
  %v87 = load ptr, ptr %v86
  %v88 = load <8 x float>, ptr %v87, align 4
  %v89 = getelementptr i64, ptr %s5, i64 9
  %v90 = load ptr, ptr %v89
  %v91 = load <8 x float>, ptr %v90, align 4
  %v92 = getelementptr i64, ptr %s5, i64 17
  %v93 = load ptr, ptr %v92
  %v94 = load <8 x float>, ptr %v93, align 4
  %v95 = getelementptr i64, ptr %s5, i64 25
  %v96 = load ptr, ptr %v95
  %v97 = load <8 x float>, ptr %v96, align 4
  %v98 = fsub <8 x float> %v88, %v94
  %v99 = fadd <8 x float> %v94, %v91
  %v100 = fsub <8 x float> %v94, %v91
  %v101 = fsub <8 x float> %v97, %v91
  %v102 = getelementptr i64, ptr %s5, i64 2
  %v103 = load ptr, ptr %v102
  %v104 = load <8 x float>, ptr %v103, align 4
  %v105 = getelementptr i64, ptr %s5, i64 10
  %v106 = load ptr, ptr %v105
  %v107 = load <8 x float>, ptr %v106, align 4
  %v108 = getelementptr i64, ptr %s5, i64 18
  %v109 = load ptr, ptr %v108
  %v110 = load <8 x float>, ptr %v109, align 4
  %v111 = getelementptr i64, ptr %s5, i64 26
  %v112 = load ptr, ptr %v111
  %v113 = load <8 x float>, ptr %v112, align 4
  %v114 = fsub <8 x float> %v104, %v110
  %v115 = fadd <8 x float> %v110, %v107
  %v116 = fsub <8 x float> %v110, %v107
  %v117 = fsub <8 x float> %v113, %v107
  %v118 = getelementptr i64, ptr %s5, i64 3
  %v119 = load ptr, ptr %v118
  %v120 = load <8 x float>, ptr %v119, align 4
  %v121 = getelementptr i64, ptr %s5, i64 11
  %v122 = load ptr, ptr %v121
  %v123 = load <8 x float>, ptr %v122, align 4
  %v124 = getelementptr i64, ptr %s5, i64 19
  %v125 = load ptr, ptr %v124
  %v126 = load <8 x float>, ptr %v125, align 4
  %v127 = getelementptr i64, ptr %s5, i64 27
  %v128 = load ptr, ptr %v127
  %v129 = load <8 x float>, ptr %v128, align 4
  %v130 = fsub <8 x float> %v120, %v126
  %v131 = fadd <8 x float> %v126, %v123
  %v132 = fsub <8 x float> %v126, %v123
  %v133 = fsub <8 x float> %v129, %v123
  %v134 = fsub <8 x float> %v82, %v114
  %v135 = fadd <8 x float> %v114, %v98
  %v136 = fsub <8 x float> %v114, %v98
  %v137 = fsub <8 x float> %v130, %v98
  store <8 x float> %v134, ptr %v73
  %v138 = getelementptr float, ptr %v73, i64 8
  store <8 x float> %v135, ptr %v138
  %v139 = getelementptr float, ptr %v73, i64 16
  store <8 x float> %v136, ptr %v139
  %v140 = getelementptr float, ptr %v73, i64 24
  store <8 x float> %v137, ptr %v140
  %v141 = fsub <8 x float> %v83, %v115
  %v142 = fadd <8 x float> %v115, %v99
  %v143 = fsub <8 x float> %v115, %v99
  %v144 = fsub <8 x float> %v131, %v99
  %v145 = getelementptr float, ptr %v73, i64 32
  store <8 x float> %v141, ptr %v145
  %v146 = getelementptr float, ptr %v73, i64 40
  store <8 x float> %v142, ptr %v146
  %v147 = getelementptr float, ptr %v73, i64 48
  store <8 x float> %v143, ptr %v147
  %v148 = getelementptr float, ptr %v73, i64 56
  store <8 x float> %v144, ptr %v148
  %v149 = fsub <8 x float> %v84, %v116
  %v150 = fadd <8 x float> %v116, %v100
  %v151 = fsub <8 x float> %v116, %v100
  %v152 = fsub <8 x float> %v132, %v100
  %v153 = getelementptr float, ptr %v73, i64 64
  store <8 x float> %v149, ptr %v153
  %v154 = getelementptr float, ptr %v73, i64 72
  store <8 x float> %v150, ptr %v154
  %v155 = getelementptr float, ptr %v73, i64 80
  store <8 x float> %v151, ptr %v155
  %v156 = getelementptr float, ptr %v73, i64 88
  store <8 x float> %v152, ptr %v156
  %v157 = fsub <8 x float> %v85, %v117
  %v158 = fadd <8 x float> %v117, %v101
  %v159 = fsub <8 x float> %v117, %v101
  %v160 = fsub <8 x float> %v133, %v101
  %v161 = getelementptr float, ptr %v73, i64 96
  store <8 x float> %v157, ptr %v161
  %v162 = getelementptr float, ptr %v73, i64 104
  store <8 x float> %v158, ptr %v162
  %v163 = getelementptr float, ptr %v73, i64 112
  store <8 x float> %v159, ptr %v163
  %v164 = getelementptr float, ptr %v73, i64 120
  store <8 x float> %v160, ptr %v164
  %l16.next = add nuw nsw i64 %l16.i, 1
  %v165 = icmp slt i64 %l16.next, %v11
  br i1 %v165, label %l16.body, label %l16.end
l16.end:
  br label %w14.end
w14.end:
  store i64 %l8.i, ptr %s6
  br i1 true, label %l166.body, label %l166.end
l166.body:
  %l166.i = phi i64 [ 0, %w14.end ], [ %l166.next, %l173.end ]
  %v167 = mul i64 %l166.i, 8
  %v168 = mul i64 %v167, 8
  %v169 = getelementptr float, ptr %p3, i64 %v168
  %v170 = getelementptr float, ptr %s1, i64 %v167
  %v171 = getelementptr float, ptr %s2, i64 %v167
  %v172 = icmp slt i64 0, %v11
  br i1 %v172, label %l173.body, label %l173.end
l173.body:
  %l173.i = phi i64 [ 0, %l166.body ], [ %l173.next, %l181.end ]
  %v174 = mul i64 %l173.i, 144
  %v175 = getelementptr float, ptr %v170, i64 %v174
  %v176 = getelementptr float, ptr %v171, i64 %v174
  store <8 x float> splat (float 0x0000000000000000), ptr %s177
  %v178 = mul i64 %l173.i, 32
  %v179 = add i64 %v178, 64
  %v180 = getelementptr float, ptr %v169, i64 %v179
  br i1 true, label %l181.body, label %l181.end
l181.body:
  %l181.i = phi i64 [ 0, %l173.body ], [ %l181.next, %l181.body ]
  %v182 = udiv i64 %l181.i, 4
  %v183 = mul i64 %v182, 16
  %v184 = getelementptr float, ptr %v180, i64 %v183
  call void @llvm.prefetch.p0(ptr %v184, i32 0, i32 2, i32 1)
  %v185 = mul i64 %l181.i, 8
  %v186 = getelementptr float, ptr %v169, i64 %v185
  %v187 = load <8 x float>, ptr %v186, align 4
  %v188 = getelementptr float, ptr %v175, i64 %l181.i
  %v189 = load float, ptr %v188
  %v190 = insertelement <8 x float> poison, float %v189, i32 0
  %v191 = shufflevector <8 x float> %v190, <8 x float> poison, <8 x i32> zeroinitializer
  %v192 = load <8 x float>, ptr %s177
  %v193 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v191, <8 x float> %v187, <8 x float> %v192)
  store <8 x float> %v193, ptr %s177
  %v194 = add i64 %l181.i, 1
  %v195 = mul i64 %v194, 8
  %v196 = getelementptr float, ptr %v169, i64 %v195
  %v197 = load <8 x float>, ptr %v196, align 4
  %v198 = getelementptr float, ptr %v175, i64 %v194
  %v199 = load float, ptr %v198
  %v200 = insertelement <8 x float> poison, float %v199, i32 0
  %v201 = shufflevector <8 x float> %v200, <8 x float> poison, <8 x i32> zeroinitializer
  %v202 = load <8 x float>, ptr %s177
  %v203 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v201, <8 x float> %v197, <8 x float> %v202)
  store <8 x float> %v203, ptr %s177
  %v204 = add i64 %l181.i, 2
  %v205 = mul i64 %v204, 8
  %v206 = getelementptr float, ptr %v169, i64 %v205
  %v207 = load <8 x float>, ptr %v206, align 4
  %v208 = getelementptr float, ptr %v175, i64 %v204
  %v209 = load float, ptr %v208
  %v210 = insertelement <8 x float> poison, float %v209, i32 0
  %v211 = shufflevector <8 x float> %v210, <8 x float> poison, <8 x i32> zeroinitializer
  %v212 = load <8 x float>, ptr %s177
  %v213 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v211, <8 x float> %v207, <8 x float> %v212)
  store <8 x float> %v213, ptr %s177
  %v214 = add i64 %l181.i, 3
  %v215 = mul i64 %v214, 8
  %v216 = getelementptr float, ptr %v169, i64 %v215
  %v217 = load <8 x float>, ptr %v216, align 4
  %v218 = getelementptr float, ptr %v175, i64 %v214
  %v219 = load float, ptr %v218
  %v220 = insertelement <8 x float> poison, float %v219, i32 0
  %v221 = shufflevector <8 x float> %v220, <8 x float> poison, <8 x i32> zeroinitializer
  %v222 = load <8 x float>, ptr %s177
  %v223 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v221, <8 x float> %v217, <8 x float> %v222)
  store <8 x float> %v223, ptr %s177
  %l181.next = add nuw nsw i64 %l181.i, 4
  %v224 = icmp slt i64 %l181.next, 8
  br i1 %v224, label %l181.body, label %l181.end
l181.end:
  %v225 = load <8 x float>, ptr %s177
  store <8 x float> %v225, ptr %v176
  %l173.next = add nuw nsw i64 %l173.i, 1
  %v226 = icmp slt i64 %l173.next, %v11
  br i1 %v226, label %l173.body, label %l173.end
l173.end:
  %l166.next = add nuw nsw i64 %l166.i, 1
  %v227 = icmp slt i64 %l166.next, 16
  br i1 %v227, label %l166.body, label %l166.end
l166.end:
  %v228 = icmp slt i64 0, %v11
  br i1 %v228, label %l229.body, label %l229.end
l229.body:
  %l229.i = phi i64 [ 0, %l166.end ], [ %l229.next, %l306.end ]
  %v230 = add i64 %v9, %l229.i
  %v231 = mul i64 %l229.i, 144
  %v232 = getelementptr float, ptr %s2, i64 %v231
  %v233 = load <8 x float>, ptr %v232
  %v234 = add i64 %v231, 32
  %v235 = getelementptr float, ptr %s2, i64 %v234
  %v236 = load <8 x float>, ptr %v235
  %v237 = add i64 %v231, 64
  %v238 = getelementptr float, ptr %s2, i64 %v237
  %v239 = load <8 x float>, ptr %v238
  %v240 = add i64 %v231, 96
  %v241 = getelementptr float, ptr %s2, i64 %v240
  %v242 = load <8 x float>, ptr %v241
  %v243 = fadd <8 x float> %v236, %v239
  %v244 = fsub <8 x float> %v236, %v239
  %v245 = fadd <8 x float> %v233, %v243
  %v246 = fadd <8 x float> %v244, %v242
  %v247 = add i64 %v231, 8
  %v248 = getelementptr float, ptr %s2, i64 %v247
  %v249 = load <8 x float>, ptr %v248
  %v250 = add i64 %v231, 40
  %v251 = getelementptr float, ptr %s2, i64 %v250
  %v252 = load <8 x float>, ptr %v251
  %v253 = add i64 %v231, 72
  %v254 = getelementptr float, ptr %s2, i64 %v253
  %v255 = load <8 x float>, ptr %v254
  %v256 = add i64 %v231, 104
  %v257 = getelementptr float, ptr %s2, i64 %v256
  %v258 = load <8 x float>, ptr %v257
  %v259 = fadd <8 x float> %v252, %v255
  %v260 = fsub <8 x float> %v252, %v255
  %v261 = fadd <8 x float> %v249, %v259
  %v262 = fadd <8 x float> %v260, %v258
  %v263 = add i64 %v231, 16
  %v264 = getelementptr float, ptr %s2, i64 %v263
  %v265 = load <8 x float>, ptr %v264
  %v266 = add i64 %v231, 48
  %v267 = getelementptr float, ptr %s2, i64 %v266
  %v268 = load <8 x float>, ptr %v267
  %v269 = add i64 %v231, 80
  %v270 = getelementptr float, ptr %s2, i64 %v269
  %v271 = load <8 x float>, ptr %v270
  %v272 = add i64 %v231, 112
  %v273 = getelementptr float, ptr %s2, i64 %v272
  %v274 = load <8 x float>, ptr %v273
  %v275 = fadd <8 x float> %v268, %v271
  %v276 = fsub <8 x float> %v268, %v271
  %v277 = fadd <8 x float> %v265, %v275
  %v278 = fadd <8 x float> %v276, %v274
  %v279 = add i64 %v231, 24
  %v280 = getelementptr float, ptr %s2, i64 %v279
  %v281 = load <8 x float>, ptr %v280
  %v282 = add i64 %v231, 56
  %v283 = getelementptr float, ptr %s2, i64 %v282
  %v284 = load <8 x float>, ptr %v283
  %v285 = add i64 %v231, 88
  %v286 = getelementptr float, ptr %s2, i64 %v285
  %v287 = load <8 x float>, ptr %v286
  %v288 = add i64 %v231, 120
  %v289 = getelementptr float, ptr %s2, i64 %v288
  %v290 = load <8 x float>, ptr %v289
  %v291 = fadd <8 x float> %v284, %v287
  %v292 = fsub <8 x float> %v284, %v287
  %v293 = fadd <8 x float> %v281, %v291
  %v294 = fadd <8 x float> %v292, %v290
  %v295 = fadd <8 x float> %v261, %v277
  %v296 = fsub <8 x float> %v261, %v277
  %v297 = fadd <8 x float> %v245, %v295
  %v298 = fadd <8 x float> %v296, %v293
  store <8 x float> %v297, ptr %s4
  %v299 = getelementptr float, ptr %s4, i64 8
  store <8 x float> %v298, ptr %v299
  %v300 = fadd <8 x float> %v262, %v278
  %v301 = fsub <8 x float> %v262, %v278
  %v302 = fadd <8 x float> %v246, %v300
  %v303 = fadd <8 x float> %v301, %v294
  %v304 = getelementptr float, ptr %s4, i64 16
  store <8 x float> %v302, ptr %v304
  %v305 = getelementptr float, ptr %s4, i64 24
  store <8 x float> %v303, ptr %v305
  br i1 true, label %l306.body, label %l306.end
l306.body:
  %l306.i = phi i64 [ 0, %l229.body ], [ %l306.next, %l307.end ]
  br i1 true, label %l307.body, label %l307.end
l307.body:
  %l307.i = phi i64 [ 0, %l306.body ], [ %l307.next, %l307.body ]
  %v308 = mul i64 %l306.i, 2
  %v309 = add i64 %v308, %l307.i
  %v310 = mul i64 %v309, 8
  %v311 = getelementptr float, ptr %s4, i64 %v310
  %v312 = load <8 x float>, ptr %v311, align 64
  %v313 = mul i64 %v230, 32
  %v314 = mul i64 %l306.i, 16
  %v315 = add i64 %v313, %v314
  %v316 = mul i64 %l307.i, 8
  %v317 = add i64 %v315, %v316
  %v318 = load <8 x float>, ptr %p1, align 4
  %v319 = fadd contract <8 x float> %v312, %v318
  %v320 = getelementptr float, ptr %p2, i64 %v317
  %v321 = load <8 x float>, ptr %v320, align 4
  %v322 = fadd contract <8 x float> %v319, %v321
  %v323 = fcmp olt <8 x float> %v322, splat (float 0x0000000000000000)
  %v324 = select <8 x i1> %v323, <8 x float> splat (float 0x0000000000000000), <8 x float> %v322
  %v325 = getelementptr float, ptr %p4, i64 %v317
  store <8 x float> %v324, ptr %v325, align 4
  %l307.next = add nuw nsw i64 %l307.i, 1
  %v326 = icmp slt i64 %l307.next, 2
  br i1 %v326, label %l307.body, label %l307.end
l307.end:
  %l306.next = add nuw nsw i64 %l306.i, 1
  %v327 = icmp slt i64 %l306.next, 2
  br i1 %v327, label %l306.body, label %l306.end
l306.end:
  %l229.next = add nuw nsw i64 %l229.i, 1
  %v328 = icmp slt i64 %l229.next, %v11
  br i1 %v328, label %l229.body, label %l229.end
l229.end:
  %l8.next = add nuw nsw i64 %l8.i, 1
  %v329 = icmp slt i64 %l8.next, %last
  br i1 %v329, label %l8.body, label %l8.end
l8.end:
  ret void
}
