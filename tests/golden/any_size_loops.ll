; elementwise
; problem   points=1200  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    loops

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l1.body, label %l1.end
l1.body:
  %l1.i = phi i64 [ %first, %entry ], [ %l1.next, %l3.end ]
  %v4 = icmp slt i64 0, %size0
  br i1 %v4, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ 0, %l1.body ], [ %l3.next, %l5.end ]
  %v6 = icmp slt i64 0, 8
  br i1 %v6, label %l5.body, label %l5.end
l5.body:
  %l5.i = phi i64 [ 0, %l3.body ], [ %l5.next, %l5.body ]
  %v7 = mul i64 %l3.i, 8
  %v8 = add i64 %v7, %l5.i
  %v9 = getelementptr float, ptr %p0, i64 %v8
  %v10 = load <8 x float>, ptr %v9, align 4
  %v11 = getelementptr float, ptr %p1, i64 %l5.i
  %v12 = load <8 x float>, ptr %v11, align 4
  %v13 = fadd contract <8 x float> %v10, %v12
  %v14 = fcmp olt <8 x float> %v13, splat (float 0x0000000000000000)
  %v15 = select <8 x i1> %v14, <8 x float> splat (float 0x0000000000000000), <8 x float> %v13
  %v16 = getelementptr float, ptr %p2, i64 %v8
  store <8 x float> %v15, ptr %v16, align 4
  %v17 = getelementptr float, ptr %p3, i64 %v8
  store <8 x float> %v13, ptr %v17, align 4
  %l5.next = add nuw nsw i64 %l5.i, 8
  %v18 = icmp slt i64 %l5.next, 8
  br i1 %v18, label %l5.body, label %l5.end
l5.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v19 = icmp slt i64 %l3.next, %size0
  br i1 %v19, label %l3.body, label %l3.end
l3.end:
  %l1.next = add nuw nsw i64 %l1.i, 1
  %v20 = icmp slt i64 %l1.next, %last
  br i1 %v20, label %l1.body, label %l1.end
l1.end:
  ret void
}
